"""The content of `run.json`: the regions of a run with their processes and addresses, its links and its owner.

A record contains the ids of the started processes; the operating system reports whether they still run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast

from emulator.config.link_profiles import profile_of
from emulator.config.link_shape import LinkShape
from emulator.config.shapes import Link
from emulator.config.topology import RegionPorts, RegionSpec, Topology
from emulator.model.machine import HEALTHY, DiskCondition
from emulator.model.values import CLIENTS
from emulator.net.addresses import LOOPBACK, in_url, nearby
from emulator.net.credentials import Credentials
from emulator.net.tls import Certificates
from emulator.run.processes import ProcessIdentity, identify, state_of

RUN_VERSION = 4
LinkState = Literal["up", "held", "cut"]


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The state of one direction of a link."""

    source: str
    """Source region; `from` in JSON."""
    target: str
    """Target region; `to` in JSON."""
    shape: LinkShape
    """Current shape of the link."""
    declared: LinkShape
    """Shape that the topology declares; `heal` restores it with state `up`."""
    via: tuple[str, ...] = ()
    """Regions whose networks the route passes; none: a direct link."""
    own: LinkShape | None = None
    """Shape that the link was given itself, if its hops make it slower or cut it; None: `shape`."""

    @property
    def state(self) -> LinkState:
        return cast(LinkState, self.shape.state)

    @property
    def profile(self) -> str | None:
        """Name of the profile whose values the link has; None: of no profile."""
        return profile_of(self.shape)

    @property
    def has_declared_speed(self) -> bool:
        """Whether latency, jitter and bandwidth are as declared."""
        return replace(self.shape, state=self.declared.state) == self.declared


@dataclass(slots=True)
class RegionRecord:
    """The record of one region: its addresses, its latest start and requested changes."""

    cluster: str
    host: str
    """Host or address at which programs of this machine reach the region."""
    service_port: int
    """0: it is not open; so are the other ports."""
    admin_port: int
    process: ProcessIdentity | None = None
    """The region's process. None: it was never started, or the region does not run as a process."""
    stopped: bool = False
    """A graceful stop was requested. As an outcome it is valid only after the process has ended."""
    was_ready: bool = False
    """The region was ready at least once since its latest start."""
    lost: bool = False
    """The region was lost. `start` resets this."""
    clock_ahead_ms: int = 0
    """Offset of the region's wall clock in milliseconds at `clock_set_at_ms`; negative: behind."""
    clock_drift_ppm: float = 0.0
    """Microseconds per second by which the offset grows."""
    clock_set_at_ms: int = 0
    """Time at which the offset was set, in milliseconds since 1970 by this machine's clock."""
    disk: DiskCondition = HEALTHY
    """State of the region's disk."""
    advertised: str = LOOPBACK
    """Host that lookups return to clients. Empty: the region listens on every address of this machine."""
    service_port_tls: int = 0
    admin_port_tls: int = 0
    tls: Certificates | None = None
    """Files with which programs of this machine connect to the ports with TLS; None: there are no such ports."""
    credentials: Credentials | None = None
    """Files of the credentials that clients of geoemu present; None: regions require none, or there are none."""
    control: str = ""
    """File of the credential with which geoemu controls the region over HTTP; empty: none is required."""

    def begin(self) -> None:
        """Reset the state for a new start."""
        self.stopped = self.was_ready = self.lost = False

    @property
    def service_url(self) -> str:
        """The service URL for clients, with the host that lookups return if there is one; with TLS if the region has
        it."""
        if not self.service_port_tls:
            return self.plain_service_url
        return f"pulsar+ssl://{in_url(self.advertised or self.host)}:{self.service_port_tls}"

    @property
    def admin_url(self) -> str:
        """The URL of the admin API; with TLS if the region has it, and then with the host that certificates name."""
        if not self.admin_port_tls:
            return self.plain_admin_url
        return f"https://{in_url(self.advertised or self.host)}:{self.admin_port_tls}"

    @property
    def plain_service_url(self) -> str:
        """The service URL without TLS; empty: the port is closed."""
        port = self.service_port
        return f"pulsar://{in_url(self.advertised or self.host)}:{port}" if port else ""

    @property
    def plain_admin_url(self) -> str:
        """The URL of the admin API without TLS; empty: the port is closed."""
        return f"http://{in_url(self.host)}:{self.admin_port}" if self.admin_port else ""


def region_record(
    region: RegionSpec,
    ports: RegionPorts,
    tls: Certificates | None = None,
    credentials: Credentials | None = None,
    control: str = "",
) -> RegionRecord:
    """Return the record of a region that was not started yet."""
    return RegionRecord(
        region.cluster,
        nearby(region.address),
        ports.service,
        ports.admin,
        advertised=region.advertised,
        service_port_tls=ports.service_tls,
        admin_port_tls=ports.admin_tls,
        tls=tls,
        credentials=credentials,
        control=control,
    )


@dataclass(slots=True)
class RunRecord:
    """The content of `run.json`."""

    runtime: str
    owner: ProcessIdentity
    """The process that created the run, such as `geoemu up`."""
    detached: bool
    """Regions keep running after the owner has ended."""
    regions: dict[str, RegionRecord]
    links: dict[Link, LinkShape]
    """Current shape of each direction of each link, by (source, target)."""
    ended: bool = False
    """`down` was called; no region may be started any more."""
    created_at: str = ""
    own_links: dict[Link, LinkShape] = field(default_factory=dict)
    """Shapes that routed links were given themselves, if their hops make them differ from `links`."""

    def is_in_use(self) -> bool:
        """Return whether a region of the run still runs, or its owner may still start one."""
        if self.runtime == "compose":
            return not self.ended  # containers outlive the program that started them
        processes = [region.process for region in self.regions.values() if region.process]
        if not self.ended:
            processes.append(self.owner)
        return any(state_of(process) != "gone" for process in processes)

    def to_json(self) -> str:
        raw = {
            "version": RUN_VERSION,
            **asdict(self),
            "links": _links_to_json(self.links),
            "own_links": _links_to_json(self.own_links),
        }
        return json.dumps(raw, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        """Inverse of `to_json`. Raises ValueError if the text is damaged."""
        raw = json.loads(text)
        try:
            raw.pop("version")
            return cls(
                **{
                    **raw,
                    "owner": ProcessIdentity(**raw["owner"]),
                    "regions": {name: _region_from_json(region) for name, region in raw["regions"].items()},
                    "links": _links_from_json(raw["links"]),
                    "own_links": _links_from_json(raw.get("own_links", [])),
                }
            )
        except (TypeError, KeyError, AttributeError) as problem:
            raise ValueError(f"not a run record: {problem!r}") from problem


def _links_to_json(links: Mapping[Link, LinkShape]) -> list[dict[str, Any]]:
    return [{"from": source, "to": target, **asdict(shape)} for (source, target), shape in links.items()]


def _links_from_json(raw: list[dict[str, Any]]) -> dict[Link, LinkShape]:
    return {(link.pop("from"), link.pop("to")): LinkShape.from_json(link) for link in raw}


def _region_from_json(raw: dict[str, Any]) -> RegionRecord:
    process = ProcessIdentity(**raw["process"]) if raw["process"] else None
    disk = DiskCondition(**raw.get("disk", {}))
    tls = Certificates(**raw["tls"]) if raw.get("tls") else None
    credentials = Credentials(**raw["credentials"]) if raw.get("credentials") else None
    return RegionRecord(**{**raw, "process": process, "disk": disk, "tls": tls, "credentials": credentials})


def new_record(
    runtime: str,
    topology: Topology,
    ports: Mapping[str, RegionPorts],
    *,
    detached: bool = False,
    ended: bool = False,
    control: str = "",
) -> RunRecord:
    """Return the record of a run that this process creates. `ports`: those of each region. `control`: file of the
    credential that controls the regions; empty: they require none."""
    owner = identify(os.getpid())
    assert owner is not None, "this process exists"
    security = topology.security
    regions = {
        region.name: region_record(
            region, ports[region.name], security.of_clients, security.client_credentials, control
        )
        for region in topology.regions
    }
    return RunRecord(runtime, owner, detached, regions, links_of(topology), ended)


def links_of(topology: Topology) -> dict[Link, LinkShape]:
    """Return the declared shapes of all links between regions, and of those between clients and their region."""
    between_regions = {(link.source, link.target): link.shape for link in topology.links}
    ways = [way for name in topology.region_names for way in ((CLIENTS, name), (name, CLIENTS))]
    return between_regions | dict.fromkeys(ways, LinkShape())


def link_statuses(record: RunRecord, topology: Topology) -> tuple[LinkStatus, ...]:
    """Return the current and the declared shapes of all links; of those of clients, only if they have a fault."""
    declared, via = links_of(topology), topology.routes
    return tuple(
        LinkStatus(*link, shape, declared[link], via.get(link, ()), record.own_links.get(link))
        for link, shape in record.links.items()
        if CLIENTS not in link or shape != declared[link]
    )
