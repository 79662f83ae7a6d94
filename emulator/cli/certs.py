"""`geoemu certs`: create throwaway certificates for the regions and clients of a topology."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.application import app
from emulator.cli.options import DEFAULT_TOPOLOGY, Expires, HostNames, TopologyFile
from emulator.net.addresses import is_wildcard

LIFETIME = timedelta(days=365)
ROLE_RULE = "must be 1 to 63 of letters, digits and . _ -"

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the certificates, such as certs.")]


def _role(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}", text) is None:
        raise typer.BadParameter(f"{text!r} {ROLE_RULE}")
    return text


Roles = Annotated[
    list[str] | None,
    typer.Option(
        "--client", metavar="ROLE", parser=_role, help="Also create a client certificate; may be repeated."
    ),
]
Renew = Annotated[
    bool, typer.Option("--renew", help="Issue all certificates of DIR again, by the same authority.")
]


@app.command(
    epilog="Example: geoemu certs certs --client app; regions use renewed files at once: geoemu certs certs --renew"
)
def certs(
    folder: Folder,
    hosts: HostNames = None,
    clients: Roles = None,
    renew: Renew = False,
    expires: Expires = None,
    file: TopologyFile = DEFAULT_TOPOLOGY,
) -> None:
    """Create throwaway certificates: an authority, one for all regions, and those of clients. They are for tests: the
    key of the authority is in the same folder. Existing files are not changed without `--renew`."""
    from emulator.config.certificates import CertificateFolder, Validity

    if renew and clients:
        raise typer.BadParameter("creates no new certificate; omit --client", param_hint="--renew")
    names = [*region_hosts(file), *(hosts or ())]
    certificates, validity = CertificateFolder(folder), Validity.from_now(expires or LIFETIME)
    written = (
        certificates.renew(names, validity) if renew else certificates.create(names, clients or (), validity)
    )
    for path in written:
        print(f"{path} is written")
    if not renew:
        print(f"\nIn topology.yaml:\n\n{_topology_part(folder, clients or [])}")


def region_hosts(file: Path) -> list[str]:
    """Return the names of this machine, and those of all regions of a topology. Without the default topology file, only
    the former. The certificates that the topology names need not exist yet."""
    from emulator.config.certificates import LOCAL_HOSTS

    names = dict.fromkeys(LOCAL_HOSTS)
    if file == DEFAULT_TOPOLOGY and not file.exists():
        return list(names)
    from emulator.config.declared import problems_by_line, read_declared
    from emulator.errors import ConfigurationError

    declared = read_declared(file)
    if problems := [problem for one in declared.files() for problem in problems_by_line(one)]:
        raise ConfigurationError(problems)
    for _, name, region in declared.regions():
        hosts = (name, region.host, region.listen)
        names |= dict.fromkeys(host for host in hosts if host and not is_wildcard(host))
    return list(names)


def _topology_part(folder: Path, roles: list[str]) -> str:
    lines = ["security:", "  tls:"]
    for key, name in (("certificate", "server.pem"), ("key", "server.key"), ("authority", "ca.pem")):
        lines.append(f"    {key}: {folder / name}")
    if roles:
        lines.append("  client:")
        lines += [f"    {key}: {folder / f'client-{roles[0]}.{suffix}'}" for key, suffix in _CLIENT_FILES]
    return "\n".join(lines)


_CLIENT_FILES = (("certificate", "pem"), ("key", "key"))
