"""Which addresses of this machine the regions of a run listen on. Beyond loopback only with permission, because
regions authenticate no client."""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Callable

from emulator.config.topology import RegionSpec, Topology
from emulator.errors import Refused
from emulator.net.addresses import HOST_RULE, is_host, is_loopback, is_wildcard

logger = logging.getLogger(__name__)

PLACES = "--listen, or `listen` or `host` of the region"
"""Where a person names an address."""


def listening_on(topology: Topology, address: str | None) -> Topology:
    """The topology with another address for all its regions; None: as it is. Refused when it is no address."""
    if address is None:
        return topology
    if not is_host(address):
        raise Refused(f"listen={address!r}: {HOST_RULE}")
    return _with_regions(topology, lambda region: dataclasses.replace(region, listen=address))


def with_addresses(topology: Topology, *, insecure: bool, in_containers: bool = False) -> Topology:
    """The topology with the numeric address of every region in its `listen`, so that what was checked is what a region
    listens on. Refused for one that other machines reach, unless `insecure`; then a warning is logged."""
    numeric = _with_regions(topology, _with_address)
    exposed = [region for region in numeric.regions if not is_loopback(region.listen)]
    if exposed and not insecure:
        raise Refused(_refusal(exposed))
    untold = [region for region in exposed if not region.advertised]
    if untold and in_containers:
        raise Refused(_untold(untold))
    if exposed:
        logger.warning(_warning(exposed) + (_kafkas(exposed) if in_containers else ""))
    return numeric


def _with_regions(topology: Topology, changed: Callable[[RegionSpec], RegionSpec]) -> Topology:
    clusters = (
        dataclasses.replace(cluster, regions=tuple(map(changed, cluster.regions)))
        for cluster in topology.clusters
    )
    return dataclasses.replace(topology, clusters=tuple(clusters))


def _with_address(region: RegionSpec) -> RegionSpec:
    """Bind to the resolved address; clients still receive the name."""
    return dataclasses.replace(region, host=region.advertised, listen=_resolved(region))


def _resolved(region: RegionSpec) -> str:
    try:
        found = socket.getaddrinfo(region.address, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failure:
        reason = getattr(failure, "strerror", None) or str(failure)
        raise Refused(
            f"region {region.name} cannot listen on {region.address}: the name has no address ({reason}); "
            f"name an address of this machine ({PLACES})"
        ) from failure
    addresses = [str(one[4][0]) for one in found]
    return next((one for one in addresses if ":" not in one), addresses[0])


def _refusal(exposed: list[RegionSpec]) -> str:
    return (
        f"{_who(exposed)} would listen on {_where(exposed)}, which other machines can reach, and regions do not "
        "authenticate clients: add --insecure (insecure=True in a program) to allow that, or name a loopback address "
        f"({PLACES})"
    )


def _untold(regions: list[RegionSpec]) -> str:
    return (
        f"lookups cannot return the address of {_who(regions)}: a container cannot see to which address of this "
        "machine a client connected. Set `host` of the region to the address that clients use, or listen on one "
        f"address instead of {_where(regions)}"
    )


def _warning(exposed: list[RegionSpec]) -> str:
    return (
        f"warning: {_who(exposed)} listen on {_where(exposed)}: any machine that reaches it can publish, consume and "
        f"change everything by the admin API, without authentication"
    )


def _kafkas(exposed: list[RegionSpec]) -> str:
    """Which Kafkas of ours are published beside their regions."""
    owners = [one for one in exposed if one.log.backend == "kafka" and not one.log.bootstrap_servers]
    return f"; it can also read and change the logs in the Kafkas of {_who(owners)}" if owners else ""


def _who(exposed: list[RegionSpec]) -> str:
    names = [region.name for region in exposed]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _where(exposed: list[RegionSpec]) -> str:
    addresses = dict.fromkeys(region.listen for region in exposed)
    return ", ".join(
        f"{one} (every address of this machine)" if is_wildcard(one) else one for one in addresses
    )
