"""The run directory, which stores a run's state, so that any process may continue where another one stopped.

    .geoemu/                by default, in the current folder
        current -> runs/2   the latest run, the default of all commands
        runs/1, runs/2, …   one folder per run, kept as evidence (contract.py describes its content)

`run.json` is replaced as a whole under a lock, so that readers need no lock and no write is lost. It contains the ids
of the started processes; the operating system reports whether they still run.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from emulator.config.link_profiles import profile_of
from emulator.config.region import LinkShape
from emulator.config.shapes import Link
from emulator.config.topology import RegionPorts, RegionSpec, Topology
from emulator.errors import Refused
from emulator.model.suggestions import nearest
from emulator.model.values import CLIENTS, HEALTHY, DiskCondition
from emulator.net.addresses import LOOPBACK, in_url, nearby
from emulator.net.credentials import Credentials
from emulator.net.tls import Certificates
from emulator.run.processes import ProcessIdentity, identify, state_of

HOME = Path(".geoemu")
"""Default location of runs in a folder."""

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


def refuse_unknown(kind: str, name: str, known: Collection[str]) -> None:
    """Raise Refused, with a suggestion, if a name is not in the run."""
    if name not in known:
        guess = nearest(name, tuple(known))
        hint = f"did you mean {guess}? " if guess else ""
        raise Refused(f"no {kind} {name!r} in this run: {hint}{kind}s are {', '.join(known)}")


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


class RunDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    def region_dir(self, region: str) -> Path:
        return self.path / "regions" / region

    def configuration_dir(self, cluster: str) -> Path:
        """Return the folder of a cluster's configuration store, for regions that run as processes."""
        return self.path / "configuration" / cluster

    def read(self) -> RunRecord:
        """Read the run record. Raises Refused if there is none, or if this version cannot read it."""
        file = self.path / "run.json"
        try:
            text = file.read_text()
        except (FileNotFoundError, NotADirectoryError):
            raise Refused(
                f"no run in {self.path}: start one with `geoemu up`, or name another --run-dir"
            ) from None
        try:
            version = json.loads(text).get("version")
        except (ValueError, AttributeError):
            raise Refused(f"{file} is damaged: delete {self.path}, or name another --run-dir") from None
        if version != RUN_VERSION:
            raise Refused(
                f"{self.path} is a run of another version ({version}, this geoemu knows {RUN_VERSION}): "
                f"use the geoemu that made it, delete it, or name another --run-dir"
            )
        try:
            return RunRecord.from_json(text)
        except ValueError as problem:
            raise Refused(
                f"{file} is damaged ({problem}): delete {self.path}, or name another --run-dir"
            ) from None

    @contextmanager
    def edit(self) -> Iterator[RunRecord]:
        """Yield the run record for changes, and write it at the end unless an exception is raised. Other processes wait
        meanwhile, so the block must not contain `await`."""
        with _locked(self.path / "run.lock"):
            record = self.read()
            yield record
            self._write(record)

    def create(self, record: RunRecord, topology: Topology) -> None:
        """Create the folders, the topology and the record of a new run in an empty directory."""
        for region in record.regions:
            self.region_dir(region).mkdir(parents=True)
        (self.path / "history").mkdir()
        replace_file(self.path / "topology.json", topology.to_json())
        record.created_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._write(record)

    def _write(self, record: RunRecord) -> None:
        replace_file(self.path / "run.json", record.to_json())


def find_run(run_dir: Path | None, folder: Path | None = None) -> RunDirectory:
    """Return the run in `run_dir`, or if it is None the latest run of the current folder. Raises Refused if there is
    none."""
    path = run_dir or (folder or Path.cwd()) / HOME / "current"
    if run_dir is None and not path.is_dir():
        raise Refused(f"no run in {path.parent.parent}: start one with `geoemu up`, or name a --run-dir")
    directory = RunDirectory(path.resolve())
    directory.read()
    return directory


@contextmanager
def claim_new_run(run_dir: Path | None, folder: Path | None = None) -> Iterator[RunDirectory]:
    """Claim an empty folder for a new run, which the caller fills with `create` in the `with` block; it is removed if
    the block fails and leaves it empty. Raises Refused if `run_dir` is not empty or unusable; if it is None, if a
    run of the current folder is up."""
    if run_dir is not None:
        yield from _yield_claimed(_claim_folder(run_dir.absolute()))
        return
    home = (folder or Path.cwd()).absolute() / HOME
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise Refused(f"{home} cannot be made ({failure.strerror}): name a --run-dir") from failure
    with _locked(home / "lock"):
        _refuse_if_up(home / "current")
        (home / ".gitignore").write_text("*\n")
        path = _next_run(home / "runs")
        yield from _yield_claimed(path)
        _replace_symlink(home / "current", Path("runs") / path.name)


def _yield_claimed(path: Path) -> Iterator[RunDirectory]:
    try:
        yield RunDirectory(path)
    except BaseException:
        if not any(path.iterdir()):
            path.rmdir()
        raise


def _claim_folder(path: Path) -> Path:
    if (path / "run.json").exists():
        record = RunDirectory(path).read()
        if record.is_in_use():
            raise Refused(
                f"a run is up in {path}: end it with `geoemu down --run-dir {path}`, "
                f"or name another --run-dir"
            )
        raise Refused(f"{path} holds a run that has ended: delete it, or name another --run-dir")
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_empty = not any(path.iterdir())
    except OSError as failure:
        raise Refused(
            f"{path} cannot be a run directory ({failure.strerror}): name another --run-dir"
        ) from failure
    if not is_empty:
        raise Refused(f"{path} is not empty and holds no run: name another --run-dir")
    return path


def _refuse_if_up(current: Path) -> None:
    directory = RunDirectory(current.resolve())
    if (directory.path / "run.json").exists() and directory.read().is_in_use():
        raise Refused(
            f"a run is up in this folder already ({directory.path}): end it with `geoemu down`, "
            f"or give the new one a --run-dir"
        )


def _next_run(runs: Path) -> Path:
    runs.mkdir(exist_ok=True)
    path = runs / str(max((int(run.name) for run in runs.iterdir() if run.name.isdigit()), default=0) + 1)
    path.mkdir()
    return path


def _replace_symlink(link: Path, target: Path) -> None:
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically: readers see the old or the new text."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file within the `with` block; block until it is free. Raises Refused if its folder
    does not exist."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        raise Refused(
            f"no run in {path.parent}: start one with `geoemu up`, or name another --run-dir"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


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
