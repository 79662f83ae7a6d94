"""Choose the addresses and ports of this machine that the regions of a run listen on.

Regions that authenticate clients and have TLS may listen on any address. Others listen on other than loopback addresses
only if the user permits it: any machine could use them, or read the credentials of their clients.

A region has the same ports after each start. A free port chosen by the system is in the ephemeral range: while a region
is down, any outgoing connection may get its port, and a client that keeps reconnecting may even connect to itself. So
free ports are chosen below that range, unless none is found there.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import random
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from emulator.config.security import SecurityConfig
from emulator.config.topology import RegionSpec, Topology
from emulator.errors import Refused
from emulator.net.addresses import HOST_RULE, in_url, is_host, is_loopback, is_wildcard

logger = logging.getLogger(__name__)

ADDRESS_SETTINGS = "--listen, or `listen` or `host` of the region"
"""The option and settings with which users name an address, for error messages."""


def listening_on(topology: Topology, address: str | None) -> Topology:
    """Return the topology with another `listen` address for all its regions; None: unchanged. Raises Refused if it is
    neither an address nor a host name."""
    if address is None:
        return topology
    if not is_host(address):
        raise Refused(f"listen={address!r}: {HOST_RULE}")
    return topology.with_regions(lambda region: dataclasses.replace(region, listen=address))


def with_addresses(topology: Topology, *, insecure: bool, in_containers: bool = False) -> Topology:
    """Return the topology with the numeric address of every region in `listen`, so that regions listen on the checked
    addresses. Raises Refused for a name without address, for an address that other machines can reach unless regions
    are secured or `insecure` is set (then a warning is logged), or if a container's lookups could return no address."""
    numeric = topology.with_regions(_with_address)
    exposed = [region for region in numeric.regions if not is_loopback(region.listen)]
    kafkas = _with_kafka(exposed) if in_containers else []
    weakness = _weakness(topology.security, kafkas)
    if exposed and weakness and not insecure:
        raise Refused(_exposure_refusal(exposed, weakness))
    without_host = [region for region in exposed if not region.advertised]
    if without_host and in_containers:
        raise Refused(_missing_host_refusal(without_host))
    if exposed and (warning := _warning(topology.security, kafkas)):
        logger.warning("warning: %s listen on %s: %s", _names(exposed), _addresses(exposed), warning)
    return numeric


def _with_address(region: RegionSpec) -> RegionSpec:
    """Return the region with its resolved address in `listen`; lookups still return the name."""
    return dataclasses.replace(region, host=region.advertised, listen=_resolve(region))


def _resolve(region: RegionSpec) -> str:
    try:
        found = socket.getaddrinfo(region.address, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failure:
        reason = getattr(failure, "strerror", None) or str(failure)
        raise Refused(
            f"region {region.name} cannot listen on {region.address}: the name has no address ({reason}); "
            f"name an address of this machine ({ADDRESS_SETTINGS})"
        ) from failure
    addresses = [str(one[4][0]) for one in found]
    return next((one for one in addresses if ":" not in one), addresses[0])


def _weakness(security: SecurityConfig, kafkas: list[RegionSpec]) -> str:
    """Return why other machines must not reach the regions; empty: they may."""
    if security.authentication is None:
        return "regions do not authenticate clients"
    if security.tls is None:
        return "regions have no TLS, so the credentials of clients can be read on the way"
    return f"the Kafkas of {_names(kafkas)} do not authenticate clients" if kafkas else ""


def _exposure_refusal(exposed: list[RegionSpec], weakness: str) -> str:
    return (
        f"{_names(exposed)} would listen on {_addresses(exposed)}, which other machines can reach, and {weakness}: "
        "add --insecure (insecure=True in a program) to allow that, or name a loopback address "
        f"({ADDRESS_SETTINGS})"
    )


def _missing_host_refusal(regions: list[RegionSpec]) -> str:
    return (
        f"lookups cannot return the address of {_names(regions)}: a container cannot see to which address of this "
        "machine a client connected. Set `host` of the region to the address that clients use, or listen on one "
        f"address instead of {_addresses(regions)}"
    )


def _warning(security: SecurityConfig, kafkas: list[RegionSpec]) -> str:
    """Return what other machines can do with regions and their Kafka containers, whose ports are published, too; empty:
    nothing without credentials."""
    sentences = []
    if security.authentication is None:
        sentences.append(
            "any machine that reaches it can publish, consume and change everything by the admin API, without "
            "authentication"
        )
    elif security.tls is None:
        sentences.append("the credentials of clients can be read on the way, because regions have no TLS")
    elif security.tls.plain_ports:
        sentences.append(
            "credentials that clients send to the ports without TLS can be read on the way; "
            "security.tls.plain_ports: false closes these ports"
        )
    if kafkas:
        also = "it can also" if sentences else "any machine that reaches it can"
        sentences.append(f"{also} read and change the logs in the Kafkas of {_names(kafkas)}")
    return "; ".join(sentences)


def _with_kafka(exposed: list[RegionSpec]) -> list[RegionSpec]:
    """Return the regions for which a Kafka container is started."""
    return [one for one in exposed if one.log.backend == "kafka" and not one.log.bootstrap_servers]


def _names(exposed: list[RegionSpec]) -> str:
    names = [region.name for region in exposed]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _addresses(exposed: list[RegionSpec]) -> str:
    addresses = dict.fromkeys(region.listen for region in exposed)
    return ", ".join(
        f"{one} (every address of this machine)" if is_wildcard(one) else one for one in addresses
    )


_OUTGOING_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT = 15_000
"""Lowest port that is chosen at random; lower ports are often the well-known ports of other programs."""
_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class WantedPort:
    region: str
    key: str
    """Name of the port in the topology, such as `service_port`, for error messages."""
    host: str
    port: int
    """Port number; 0: any free port."""


def choose_ports(wanted: Iterable[WantedPort]) -> list[int]:
    """Return a port for each of `wanted`, in order; all can be listened on together now. Raises Refused if a port is in
    use or an address is not one of this machine."""
    wanted = list(wanted)
    chosen: dict[int, int] = {}
    with ExitStack() as listeners:
        fixed_first = sorted(range(len(wanted)), key=lambda index: wanted[index].port == 0)
        for index in fixed_first:
            listener = listeners.enter_context(_listen_on(wanted[index]))
            chosen[index] = listener.getsockname()[1]
    return [chosen[index] for index in range(len(wanted))]


def _listen_on(wanted: WantedPort) -> socket.socket:
    try:
        return _bind(wanted.host, wanted.port) if wanted.port else _bind_any(wanted.host)
    except OSError as failure:
        where = f"`{wanted.key}` of region {wanted.region}"
        if failure.errno == errno.EADDRINUSE:
            message = (
                f"port {wanted.port} is in use: end the program that listens there, or change {where} "
                f"(0 picks a free port)"
            )
        else:
            reason = failure.strerror or str(failure)
            setting = f"the address of region {wanted.region} ({ADDRESS_SETTINGS})"
            setting += f" or {where}" if wanted.port else ""
            message = f"cannot listen on {in_url(wanted.host)}:{wanted.port} ({reason}): change {setting}"
        raise Refused(message) from failure


def _bind_any(host: str) -> socket.socket:
    highest = _lowest_outgoing_port() - 1
    for _ in range(_ATTEMPTS if highest > LOWEST_PORT else 0):
        try:
            return _bind(host, random.randint(LOWEST_PORT, highest))
        except OSError as failure:
            if failure.errno != errno.EADDRINUSE:
                raise
    return _bind(host, 0)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # As regions do: connections in TIME_WAIT do not count as use of the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1)  # with SO_REUSEADDR, two sockets that only bind could share the port
    except OSError:
        listener.close()
        raise
    return listener


def _lowest_outgoing_port() -> int:
    try:
        return int(_OUTGOING_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
