"""Java's pulsar-admin, fetched by Maven once and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from emulator.errors import Refused
from emulator.runtimes.contract import RunStatus

VERSION: Final = "4.0.6"
"""Of Pulsar's tools."""
JACKSON_VERSION: Final = "2.17.2"
"""Maven alone would choose a jackson-core that is too old for jackson-databind: the tool would wait for five minutes
instead of reading a load report."""
FETCH_SECONDS: Final = 900
_POM: Final = f"""<?xml version="1.0" encoding="UTF-8"?>
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>geoemu.tools</groupId>
  <artifactId>pulsar-admin</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.pulsar</groupId>
      <artifactId>pulsar-client-tools</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>com.fasterxml.jackson.core</groupId>
      <artifactId>jackson-core</artifactId>
      <version>{JACKSON_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>com.fasterxml.jackson.core</groupId>
      <artifactId>jackson-databind</artifactId>
      <version>{JACKSON_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def run_against(status: RunStatus, region: str, arguments: Sequence[str]) -> int:
    """Its exit code. Refused when there is no such region, or no Java."""
    found = next((one for one in status.regions if one.name == region), None)
    if found is None:
        raise Refused(
            f"no region {region!r} in this run: regions are {', '.join(one.name for one in status.regions)}"
        )
    if not found.admin_url:
        raise Refused(f"{region} is {found.state} and has no address")
    java = shutil.which("java")
    if java is None:
        raise Refused(
            "pulsar-admin needs Java, which is not installed; the same over HTTP: curl "
            f"{found.admin_url}/admin/v2/clusters"
        )
    jars = f"{_fetched()}/*"
    main = "org.apache.pulsar.admin.cli.PulsarAdminTool"
    configuration = _configuration(found.admin_url, found.service_url)
    command = [java, "-XX:TieredStopAtLevel=1", "-cp", jars, main, str(configuration), *arguments]
    try:
        return subprocess.run(command).returncode
    finally:
        configuration.unlink(missing_ok=True)


def _folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "geoemu" / f"pulsar-admin-{hashlib.sha256(_POM.encode()).hexdigest()[:12]}"


def _fetched() -> Path:
    """The folder with its jars. Refused when Maven is not there, or cannot fetch them."""
    jars = _folder() / "jars"
    if jars.exists():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise Refused("Maven (mvn) is not installed; it is needed to download pulsar-admin the first time")
    _folder().mkdir(parents=True, exist_ok=True)
    (_folder() / "pom.xml").write_text(_POM)
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}.part"]
    done = subprocess.run(command, cwd=_folder(), capture_output=True, text=True, timeout=FETCH_SECONDS)
    if done.returncode:
        raise Refused(f"Maven could not download pulsar-admin: {(done.stdout + done.stderr).strip()[-500:]}")
    Path(f"{jars}.part").rename(jars)
    return jars


def _configuration(admin_url: str, service_url: str) -> Path:
    """What the tool reads its addresses from."""
    file = _folder() / f"client-{os.getpid()}.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"webServiceUrl={admin_url}/\nbrokerServiceUrl={service_url}\n")
    return file
