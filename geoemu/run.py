"""A run of regions for programs: the verbs of the command line as methods that wait for their effect."""

from __future__ import annotations

import atexit
import json
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

from emulator.config.loading import load_topology
from emulator.config.renamed import renamed_arguments
from emulator.errors import RuntimeFailure
from emulator.model.explanations import Explanation
from emulator.model.failover_plans import FailoverPlan, Translation
from emulator.model.values import TopicName
from emulator.net.credentials import NO_CREDENTIALS
from emulator.recording import recorded
from emulator.recording.context import environment_variables
from emulator.recording.journal import end_journals, seal_actors
from emulator.recording.tap.tap import Tap, open_tap_history
from emulator.run.history import HistoryWriter
from emulator.run.service_contract import Contract, write_contract
from emulator.runtimes.admin_client import NoHttpResponse, call, describe
from emulator.runtimes.contract import RegionState, RegionStatus, Runtime
from emulator.runtimes.explain_queries import explain_in_regions
from emulator.runtimes.listening import listening_on
from emulator.runtimes.opening import create_run, open_run, operator_history, select_regions
from emulator.runtimes.verifier import verify_command, verify_now
from emulator.scenarios.failover_plans import plan_in_run, record_plan
from emulator.scenarios.region_queries import read_topics_over_http, survey
from emulator.scenarios.region_removal import RegionRemoval, preview_in_run, remove_in_run
from emulator.scenarios.translations import translate_in_run
from geoemu.faults import Background, all_of
from geoemu.verdict import Verdict, verdict_from
from geoemu.waits import Waits

_Client = TypeVar("_Client")


def up(
    topology: str | Path = "topology.yaml",
    *,
    runtime: str | None = None,
    run_dir: str | Path | None = None,
    listen: str | None = None,
    insecure: bool = False,
    detached: bool = False,
) -> Geo:
    """Start every region of a topology and wait until all are ready. Leaving its `with` block ends the run.

    `topology`: path of the topology file. `runtime`: `process` or `compose`; None: that of the topology. `run_dir`: the
    directory of the new run, which must be empty; None: a new one in `.geoemu/runs`.
    `listen`: the address of this machine that all regions listen on; None: that of the topology, or 127.0.0.1.
    `insecure`: allow an address that other machines can reach, although regions have no authentication or no TLS.
    `detached`: the regions keep running after the block and the end of this program, until `geoemu down`.

    Raises ConfigurationError with every error in the files, and RuntimeFailure if the run cannot be created or a region
    does not become ready.
    """
    declared = listening_on(load_topology(Path(topology)), listen)
    directory = None if run_dir is None else Path(run_dir)
    run = create_run(runtime or declared.runtime, declared, directory, insecure=insecure, detached=detached)
    geo = Geo(run, ends=not detached)
    geo._bring_up()
    return geo


def attach(run_dir: str | Path | None = None) -> Geo:
    """Return an existing run, by default the latest one of the current folder. Leaving its `with` block does not end
    it.

    Raises RuntimeFailure if there is no such run.
    """
    return Geo(open_run(None if run_dir is None else Path(run_dir)), ends=False)


class Geo(Waits):
    """A run, returned by `up` and `attach`."""

    def __init__(self, runtime: Runtime, *, ends: bool) -> None:
        super().__init__(runtime)
        self._ends = ends
        self._taps: list[Tapped] = []

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self._runtime.run_dir

    @property
    def regions(self) -> tuple[str, ...]:
        """Names of the regions, in the order of the topology."""
        return tuple(self._runtime.topology.region_names)

    # --- for clients --------------------------------------------------------------------------------------

    def url(self, region: str) -> str:
        """Return the service URL of a region, for Pulsar clients. Raises RuntimeFailure for an unknown region."""
        return self._region(region).service_url

    def client_options(self, region: str) -> dict[str, Any]:
        """Return the arguments of `pulsar.Client` for a region with TLS or authentication, empty for any other:
        `pulsar.Client(geo.url("us"), **geo.client_options("us"))`. They name the files of `security.client`."""
        from emulator.scenarios.actors.pulsar_client import client_options

        found = self._region(region)
        return client_options(found.tls, found.credentials or NO_CREDENTIALS)

    def admin_url(self, region: str) -> str:
        """Return the URL of a region's admin API. Raises RuntimeFailure for an unknown region."""
        return self._region(region).admin_url

    def state(self, region: str) -> RegionState:
        """Return the current state of a region: starting, running, paused, stopped, killed or lost. Raises
        RuntimeFailure for an unknown region."""
        return self._region(region).state

    def recorded(self, client: _Client, *, actor: str | None = None) -> _Client:
        """Return a client that behaves like `client` and records its operations in this run, as `geoemu.recorded` does.

        `actor`: name of the history file; None: as for `geoemu.recorded`. Raises RuntimeFailure if the client's service
        URL belongs to no region of the run.
        """
        return recorded(client, self.run_dir, actor=actor)

    def tap(self, name: str = "wire") -> Tapped:
        """Start a tap, which records every client that connects to its URLs, in any language (docs/OWN_SERVICE.md).

        `name`: name of the history file. Raises RuntimeFailure if another tap writes this file.
        """
        tapped = Tapped(self._background, open_tap_history(self.run_dir, name), self._regions())
        self._taps.append(tapped)
        return tapped

    def environment(self, region: str, *, actor: str) -> dict[str, str]:
        """Return the environment variables for a program that works in a region: GEOEMU_SERVICE_URL and others
        (docs/OWN_SERVICE.md). `actor` is the name under which the program is recorded."""
        return environment_variables(self.run_dir, actor, self._region(region).name, self._regions())

    def create_namespace(self, name: str | None = None) -> str:
        """Create a namespace with deduplication that is replicated between all regions, and return its name,
        `tenant/name`. None: a new name in the first tenant of the topology.

        Raises RuntimeFailure if it exists, or if a region does not respond or rejects it; other regions may have it.
        """
        name = name or f"{self._runtime.topology.tenants[0]}/{uuid4().hex[:12]}"
        created = (_create_namespace(one, name, self.regions) for one in self._regions())
        if not any(self._background.run(all_of(created))):
            raise RuntimeFailure(f"namespace {name} exists")
        return name

    # --- results ------------------------------------------------------------------------------------------

    def backlog(self, region: str, topic: str, subscription: str) -> int | None:
        """Return the number of unacknowledged messages of a subscription in a region; None if the region does not have
        the subscription or does not respond."""
        found = self._background.run(survey([self._region(region)], read_topics_over_http))
        known = found.topics.get(region, {}).get(str(TopicName.parse(topic)))
        return None if known is None else known.unacknowledged.get(subscription)

    def explain(self, kind: str, *name: str, region: str | None = None) -> dict[str, Explanation]:
        """Return the state of an object, and why it is so, by region: `explain("subscription", "orders", "billing")`.
        Regions that do not respond, or do not have the object, are left out.

        `kind`, `name`: as for `geoemu explain`. `region`: query this region only. Raises ConfigurationError if the kind
        or the region is unknown, or no region has the object; RuntimeFailure if no region responds.
        """
        responses = self._background.run(explain_in_regions(self._runtime, kind, name, region))
        found = {one.region: one.explanation for one in responses if one.explanation is not None}
        if not found:
            raise RuntimeFailure("; ".join(f"region {one.region}: {one.problem}" for one in responses))
        return found

    def failover_plan(self, topic: str, subscription: str, *, from_: str, to: str) -> FailoverPlan:
        """Return what happens if the consumers of a subscription leave region `from_` now and continue in region `to`,
        and record it: the verdict compares the plan with what follows.

        `topic`: a topic, or one partition of a topic. The plan of a partitioned topic is a PartitionedPlan: the sums,
        and the plans of its `partitions`. Raises RuntimeFailure if `to` does not respond or a name is unknown. If
        `from_` does not respond, the plan is an upper bound.
        """
        plan = self._background.run(plan_in_run(self._runtime, topic, subscription, from_, to))
        with closing(operator_history(self._runtime)) as history:
            record_plan(history, plan)
        return plan

    def translate(self, topic: str, position: str, *, from_: str, to: str) -> Translation:
        """Return the place of an entry of region `from_` in the log of region `to`: exact if it is stored there,
        otherwise bounds.

        `position`: `ledger:entry` in `from_`. Raises RuntimeFailure if a name or the position is unknown, or neither
        region responds.
        """
        return self._background.run(translate_in_run(self._runtime, topic, position, from_, to))

    def remove_region(self, region: str) -> RegionRemoval:
        """Take a region that will not return out of all namespaces and topics, and return what may be lost with it. The
        other regions refuse it if it returns.

        Raises RuntimeFailure if the region is connected to another one or is unknown, or if no other region responds.
        """
        removal = self._background.run(preview_in_run(self._runtime, region))
        if self.state(region) != "lost":
            self.lose(region)
        self._background.run(remove_in_run(self._runtime, removal))
        return removal

    def seal(self, *actors: str) -> None:
        """Close the histories of programs that were killed; their pending operations stay unknown. Raises
        RuntimeFailure if an actor has no history or is still running."""
        for _ in seal_actors(self.run_dir, actors):
            pass

    @renamed_arguments
    def verify(
        self,
        *,
        stop: bool = True,
        expect: str | None = None,
        report: str | Path | None = None,
        engine: str | None = None,
        contract: Iterable[Contract] = (),
    ) -> Verdict:
        """Verify the run: check the stored logs of its regions against the histories of its clients.

        Ends the recording of clients and taps in this process. `stop`: stop all regions first; if False, they keep
        running. `expect`: limits, as on the command line (docs/LIMITS.md). `report`: folder for the report; None:
        `report` in the run directory. `engine`: `spark` or `embedded`; None: as on the command line. `contract`:
        contracts of your service, such as `geoemu.Contract.between("billing", "orders", "invoices")`.

        Raises RuntimeFailure if no verdict could be computed.
        """
        self._end_recording()
        if stop:
            self._background.run(all_of(self._runtime.stop(region) for region in self.regions))
        if contracts := list(contract):
            write_contract(self.run_dir, contracts)
        page = self.run_dir / "report" if report is None else Path(report)
        command = verify_command(self.run_dir, as_json=True, expect=expect, report=page, engine=engine)
        result = verify_now(command)
        if not result.output:
            raise RuntimeFailure(f"no verdict for {self.run_dir}: see the output above")
        return verdict_from(json.loads(result.output), result.exit_code, page / "report.html")

    # --- the end ------------------------------------------------------------------------------------------

    def down(self) -> None:
        """Stop all regions and end the run; its directory stays. A second call has no effect."""
        atexit.unregister(self.down)
        self._end_recording()
        try:
            self._background.run(self._runtime.down())
        except KeyboardInterrupt:
            self._background.run(all_of(self._runtime.kill(region) for region in self.regions))
            raise

    def __enter__(self) -> Geo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ends:
            return
        if problem is None:
            self.down()
        else:
            with suppress(RuntimeFailure):  # the error of the block is raised
                self.down()

    # --- inside -------------------------------------------------------------------------------------------

    def _end_recording(self) -> None:
        end_journals(self.run_dir)
        for tapped in self._taps:
            tapped.close()

    def _bring_up(self) -> None:
        self._background.run(self._runtime.up())
        if self._ends:
            atexit.register(self.down)

    def _regions(self) -> tuple[RegionStatus, ...]:
        return self._background.run(self._runtime.status()).regions

    def _region(self, region: str) -> RegionStatus:
        select_regions(self._runtime.topology, [region], None)  # raises Refused for an unknown region
        return next(one for one in self._regions() if one.name == region)


async def _create_namespace(region: RegionStatus, name: str, clusters: Iterable[str]) -> bool:
    """Create a namespace in a region. Return False if it exists, as it does when another region of the same cluster
    created it. Raises RuntimeFailure."""
    policies = {"replication_clusters": list(clusters), "deduplicationEnabled": True}
    target = f"/admin/v2/namespaces/{quote(name)}"
    try:
        answer = await call(region, "PUT", target, policies)
    except NoHttpResponse as problem:
        raise RuntimeFailure(f"{region.name} does not respond: {problem}") from None
    if answer.status not in (204, 409):
        raise RuntimeFailure(f"{region.name} did not create namespace {name}: {describe(answer)}")
    return answer.status == 204


class Tapped:
    """A tap in front of every region, returned by `Geo.tap`."""

    def __init__(
        self, background: Background, history: HistoryWriter, regions: Iterable[RegionStatus]
    ) -> None:
        self._background = background
        self._tap = Tap(history)
        opened = background.run(self._tap.open(regions))
        self._urls = {one.name: one.service_url for one in opened}

    def url(self, region: str) -> str:
        """Return the service URL of the tap for a region. Raises KeyError for an unknown region."""
        return self._urls[region]

    def close(self) -> None:
        """Close the tap's connections and its history; `verify` and `down` do this, too. A second call has no
        effect."""
        self._background.run(self._tap.close())
        self._tap.history.close()
