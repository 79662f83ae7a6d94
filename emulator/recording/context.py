"""The context of a recorded client: its run, its region, and the name of its history."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from emulator.errors import Refused
from emulator.net.addresses import is_loopback, is_wildcard
from emulator.net.credentials import Credentials
from emulator.net.tls import Certificates
from emulator.run.directory import RunDirectory, find_run
from emulator.run.record import RegionRecord

NON_PERSISTENT_PREFIX = "non-persistent://"
"""Prefix of topics that are not recorded: non-persistent topics guarantee no delivery."""
_DEFAULT_PORT = 6650


def run_directory(run: str | Path | None) -> RunDirectory:
    """Return the directory of the given run, or of the run in GEOEMU_RUN_DIR, or of the latest run. Raises Refused if
    there is none."""
    configured = run or os.environ.get(RUN_DIR_VARIABLE)
    return find_run(Path(configured) if configured else None)


def actor_name() -> str:
    """Return the actor name of this program: GEOEMU_ACTOR, or the name of its file or package."""
    configured = os.environ.get(ACTOR_VARIABLE)
    if configured:
        return configured
    file = Path(sys.argv[0] if sys.argv else "")
    program = file.parent.name if file.stem == "__main__" else file.stem  # of `python -m package`
    return re.sub(r"[^-.\w]+", "-", program).strip("-._") or "program"


@dataclass(frozen=True, slots=True)
class ClientLocation:
    """The region to which a client is connected, until it switches to another one."""

    region: str
    client: Any
    service_url: str | None
    """The client's service URL when it was wrapped; None: the client does not provide it."""

    @classmethod
    def of(cls, client: Any, directory: RunDirectory, region: str | None) -> ClientLocation:
        """Return the location of a client. Raises Refused if its region cannot be determined or is not in the run."""
        regions = directory.read().regions
        service_url = _service_url(client)
        if region is None:
            if service_url is None:
                raise Refused("this pulsar-client does not provide its service URL: pass region=…")
            region = region_at_url(service_url, regions)
        elif region not in regions:
            raise Refused(f"the run in {directory.path} has no region {region!r}: {', '.join(regions)}")
        return cls(region, client, service_url)

    def switched_url(self) -> str | None:
        """Return the service URL to which the client has switched by itself; None if it has not."""
        if self.service_url is None:
            return None
        now = _service_url(self.client)
        return None if now == self.service_url else now


def region_at_url(service_url: str, regions: Mapping[str, RegionRecord]) -> str:
    """Return the region with this service URL. Raises Refused if no region or several regions have it."""
    named = {region_at_address(address, regions) for address in addresses(service_url)}
    if len(named) != 1 or None in named:
        offered = ", ".join(f"{name} {one.service_url}" for name, one in regions.items())
        why = "is at several regions of the run" if None not in named else "is at no region of the run"
        raise Refused(f"{service_url} {why} ({offered}): pass region=… to choose one")
    return str(named.pop())


def region_at_address(address: tuple[str, int], regions: Mapping[str, RegionRecord]) -> str | None:
    """Return the region at an address (host, port), or None. In a network of containers, the host is the region's
    name."""
    host, port = address
    for name, region in regions.items():
        ports = {region.service_port, region.service_port_tls} - {0}
        if host == name or (port in ports and _is_at(host, region)):
            return name
    return None


def _is_at(host: str, region: RegionRecord) -> bool:
    """Return whether a client that connects to `host` reaches the region. True for a region that listens on every
    address."""
    if host in (region.host, region.advertised) or not region.advertised:
        return True
    return is_loopback(region.host) and (is_loopback(host) or is_wildcard(host))


def addresses(service_url: str) -> list[tuple[str, int]]:
    """Return the (host, port) pairs of a service URL such as `pulsar://a:1,b:2`."""
    scheme, _, rest = service_url.partition("://")
    parts = [urlsplit(f"{scheme}://{one}") for one in rest.split("/", 1)[0].split(",")]
    return [(part.hostname or "", part.port or _DEFAULT_PORT) for part in parts]


def _service_url(client: Any) -> str | None:
    get_info = getattr(client, "get_service_info", None) or getattr(client._client, "get_service_info", None)
    if get_info is None:
        return None
    url = get_info().service_url
    return str(url() if callable(url) else url)


RUN_DIR_VARIABLE = "GEOEMU_RUN_DIR"
ACTOR_VARIABLE = "GEOEMU_ACTOR"


class RegionAddress(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def service_url(self) -> str: ...

    @property
    def admin_url(self) -> str: ...

    @property
    def tls(self) -> Certificates | None: ...

    @property
    def credentials(self) -> Credentials | None: ...


def environment_variables(
    run_dir: Path, actor: str | None, region: str, regions: Iterable[RegionAddress]
) -> dict[str, str]:
    """Return the environment variables for a program that works in `region`. `actor` None: the program is recorded
    under a name of its own. Raises KeyError if there is no such region."""
    known = {one.name: one for one in regions}
    region_address = known[region]
    return {
        RUN_DIR_VARIABLE: str(run_dir.absolute()),
        **({} if actor is None else {ACTOR_VARIABLE: actor}),
        "GEOEMU_REGION": region,
        "GEOEMU_SERVICE_URL": region_address.service_url,
        "GEOEMU_ADMIN_URL": region_address.admin_url,
        **{_variable(name): one.service_url for name, one in known.items()},
        **tls_variables(region_address.tls),
        **credential_variables(region_address.credentials),
    }


def credential_variables(credentials: Credentials | None) -> dict[str, str]:
    """Return the environment variables with the files of credentials. They contain paths, never the credentials: the
    environment of a process can be read by others, and a renewed file is read again."""
    if credentials is None:
        return {}
    files = {"GEOEMU_TOKEN_FILE": credentials.token, "GEOEMU_BASIC_FILE": credentials.basic}
    return {name: path for name, path in files.items() if path}


def tls_variables(tls: Certificates | None) -> dict[str, str]:
    """Return the environment variables with the files for connections with TLS."""
    if tls is None:
        return {}
    own = {"GEOEMU_TLS_CERTIFICATE_FILE": tls.certificate, "GEOEMU_TLS_KEY_FILE": tls.key}
    return {"GEOEMU_TLS_TRUST_CERTS_FILE": tls.authority, **(own if tls.certificate else {})}


def _variable(region: str) -> str:
    return "GEOEMU_SERVICE_URL_" + re.sub(r"\W", "_", region).upper()


class Delegate:
    """Base of wrappers: attributes that the wrapper does not define are those of the wrapped object."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return f"<recorded {self._inner!r}>"
