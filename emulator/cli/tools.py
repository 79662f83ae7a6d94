"""`geoemu pulsar-admin` and `geoemu transactions`.

Maven downloads Java's pulsar-admin once, into the user's cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from emulator.cli.application import app, open_run_of
from emulator.cli.completion import complete_region
from emulator.cli.curl import CurlRequest, print_curl
from emulator.cli.options import AsCurl, RunDir
from emulator.errors import Refused, RuntimeFailure
from emulator.runtimes.admin_client import NoHttpResponse, call
from emulator.runtimes.contract import RegionStatus, RunStatus, Runtime

Region = Annotated[
    str, typer.Argument(metavar="REGION", help="The region to query.", autocompletion=complete_region)
]
Arguments = Annotated[
    list[str],
    typer.Argument(metavar="-- ARGUMENTS...", help="Arguments of pulsar-admin, such as topics stats orders."),
]


@app.command(name="pulsar-admin", epilog="Example: geoemu pulsar-admin us-east -- topics stats orders")
def pulsar_admin(region: Region, arguments: Arguments, run_dir: RunDir = None) -> None:
    """Run Java's pulsar-admin against a region. Needs Java, and Maven the first time; any HTTP client works
    as well: docs/ADMIN.md lists the paths."""
    raise typer.Exit(run_pulsar_admin(asyncio.run(open_run_of(run_dir).status()), region, arguments))


family = typer.Typer(no_args_is_help=True, help="List, show and delete the transaction keys of a region.")
app.add_typer(family, name="transactions")

OfRegion = Annotated[
    str,
    typer.Argument(
        metavar="REGION", help="A region of the run; keys are per region.", autocompletion=complete_region
    ),
]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="A transaction key, or OWNER&KEY if several owners have it.")
]


@family.command("list-transaction-keys", epilog="Example: geoemu transactions list-transaction-keys us-east")
def list_keys(region: OfRegion, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """List all transaction keys of a region, one per line."""
    if as_curl:
        print_curl(run_dir, request_of("GET", None), [region])
        return
    for name in asyncio.run(send_request(open_run_of(run_dir), region, "GET", None)):
        print(name)


@family.command(
    "get-transaction-key", epilog="Example: geoemu transactions get-transaction-key us-east task-1"
)
def get_key(region: OfRegion, key: Key, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Print a key's epoch, its last client and its transactions with their status, as JSON."""
    if as_curl:
        print_curl(run_dir, request_of("GET", key), [region])
        return
    print(json.dumps(asyncio.run(send_request(open_run_of(run_dir), region, "GET", key)), indent=1))


@family.command(
    "delete-transaction-key", epilog="Example: geoemu transactions delete-transaction-key us-east task-1"
)
def delete_key(region: OfRegion, key: Key, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Delete a key. Its open transaction is aborted and its connection closed; its epoch is kept."""
    if as_curl:
        print_curl(run_dir, request_of("DELETE", key), [region])
        return
    asyncio.run(send_request(open_run_of(run_dir), region, "DELETE", key))


KEYS = "/admin/v2/transactions/transaction-keys"
RESPONSE_SECONDS = 15.0
"""Long enough for a deletion, which first aborts the key's transaction."""


def request_of(method: str, key: str | None) -> CurlRequest:
    return CurlRequest(method, KEYS if key is None else f"{KEYS}/{quote(key, safe='')}")


async def send_request(run: Runtime, region: str, method: str, key: str | None) -> Any:
    """Send a request to a region and return the response, or None. Raises ConfigurationError for an unknown region,
    RuntimeFailure for an error or no response."""
    run.topology.region(region)
    status = await run.status()
    (found,) = [one for one in status.regions if one.name == region]
    target = request_of(method, key).target
    try:
        answer = await call(found, method, target, seconds=RESPONSE_SECONDS)
    except NoHttpResponse as failure:
        raise RuntimeFailure(f"region {region} is {found.state} and does not respond ({failure})") from None
    if answer.status >= 400:
        raise RuntimeFailure(f"region {region}: {answer.json()['reason']}")
    return answer.json() if answer.body else None


PULSAR_VERSION: Final = "4.0.6"
"""Version of Pulsar's tools."""
JACKSON_VERSION: Final = "2.17.2"
"""Version of both Jackson libraries. Maven would choose a jackson-core that is too old for jackson-databind, with which
the tool waits for five minutes instead of reading a load report."""
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
      <version>{PULSAR_VERSION}</version>
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


def run_pulsar_admin(status: RunStatus, region: str, arguments: Sequence[str]) -> int:
    """Run pulsar-admin and return its exit code. Raises Refused if it cannot be run or the region has no address."""
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
    jars = f"{_fetch_jars()}/*"
    main = "org.apache.pulsar.admin.cli.PulsarAdminTool"
    configuration = _configuration(found)
    command = [java, "-XX:TieredStopAtLevel=1", "-cp", jars, main, str(configuration), *arguments]
    try:
        return subprocess.run(command).returncode
    finally:
        configuration.unlink(missing_ok=True)


def _folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "geoemu" / f"pulsar-admin-{hashlib.sha256(_POM.encode()).hexdigest()[:12]}"


def _fetch_jars() -> Path:
    """Return the folder with pulsar-admin's jars, downloaded if missing. Raises Refused on failure."""
    jars = _folder() / "jars"
    if jars.exists():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise Refused("Maven (mvn) is not installed; it is needed to download pulsar-admin the first time")
    _folder().mkdir(parents=True, exist_ok=True)
    (_folder() / "pom.xml").write_text(_POM)
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}.part"]
    try:
        done = subprocess.run(command, cwd=_folder(), capture_output=True, text=True, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        raise Refused(
            f"Maven did not download pulsar-admin within {FETCH_SECONDS} s: check the network and try again"
        ) from None
    if done.returncode:
        raise Refused(f"Maven could not download pulsar-admin: {(done.stdout + done.stderr).strip()[-500:]}")
    Path(f"{jars}.part").rename(jars)
    return jars


def _configuration(region: RegionStatus) -> Path:
    """Write the addresses of the region, and the files for TLS, to a configuration file of pulsar-admin."""
    file = _folder() / f"client-{os.getpid()}.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    settings = {"webServiceUrl": f"{region.admin_url}/", "brokerServiceUrl": region.service_url}
    if region.tls is not None:
        settings |= {
            "useTls": "true",
            "tlsTrustCertsFilePath": region.tls.authority,
            "tlsEnableHostnameVerification": "true",
            "tlsCertificateFilePath": region.tls.certificate,
            "tlsKeyFilePath": region.tls.key,
        }
    if region.credentials is not None:
        plugin, parameters = region.credentials.plugin()
        settings |= {"authPlugin": plugin, "authParams": parameters} if plugin else {}
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
        written.write("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file
