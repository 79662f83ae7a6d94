"""A run of regions for programs: the verbs of the command line as methods that wait for their effect."""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from emulator.config.loading import load_topology
from emulator.config.renamed import renamed_arguments
from emulator.errors import RuntimeFailure
from emulator.model.protocol_events import ProtocolState
from emulator.model.values import TopicName, seconds_in
from emulator.recording import recorded
from emulator.recording.context import environment_variables
from emulator.recording.journal import end_journals, seal_actors
from emulator.recording.tap.tap import Tap, open_tap_history
from emulator.run.history import HistoryWriter
from emulator.run.service_contract import Contract, write_contract
from emulator.runtimes.contract import RegionState, RegionStatus, Runtime
from emulator.runtimes.listening import listening_on
from emulator.runtimes.opening import create_run, open_run, select_regions
from emulator.runtimes.verifier import verify_command, verify_now
from emulator.scenarios.await_conditions import await_condition
from emulator.scenarios.region_queries import await_state, read_topics_over_http, survey
from geoemu.faults import Background, Faults, all_of
from geoemu.verdict import Verdict, verdict_from

_Client = TypeVar("_Client")
POLL_SECONDS = 0.1


def up(
    topology: str | Path = "topology.yaml",
    *,
    runtime: str | None = None,
    run_dir: str | Path | None = None,
    listen: str | None = None,
    insecure: bool = False,
) -> Geo:
    """Start every region of a topology and wait until all are ready. Leaving its `with` block ends the run.

    `topology`: path of the topology file. `runtime`: `process` or `compose`; None: that of the topology. `run_dir`: the
    directory of the new run, which must be empty; None: a new one in `.geoemu/runs`.
    `listen`: the address of this machine that all regions listen on; None: that of the topology, or 127.0.0.1.
    `insecure`: allow an address that other machines can reach, although regions do not authenticate clients.

    Raises ConfigurationError with every error in the files, and RuntimeFailure if the run cannot be created or a region
    does not become ready.
    """
    declared = listening_on(load_topology(Path(topology)), listen)
    directory = None if run_dir is None else Path(run_dir)
    run = create_run(runtime or declared.runtime, declared, directory, insecure=insecure)
    geo = Geo(run, ends=True)
    geo._bring_up()
    return geo


def attach(run_dir: str | Path | None = None) -> Geo:
    """Return an existing run, by default the latest one of the current folder. Leaving its `with` block does not end
    it.

    Raises RuntimeFailure if there is no such run.
    """
    return Geo(open_run(None if run_dir is None else Path(run_dir)), ends=False)


class Geo(Faults):
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

    # --- results ------------------------------------------------------------------------------------------

    def backlog(self, region: str, topic: str, subscription: str) -> int | None:
        """Return the number of unacknowledged messages of a subscription in a region; None if the region does not have
        the subscription or does not respond."""
        found = self._background.run(survey([self._region(region)], read_topics_over_http))
        known = found.topics.get(region, {}).get(str(TopicName.parse(topic)))
        return None if known is None else known.unacknowledged.get(subscription)

    def drain(self, within: str = "10s") -> None:
        """Wait until replication between all regions that are not lost has caught up.

        `within`: maximum time, as a duration such as `10s`. Raises RuntimeFailure after that time, with a backlog that
        is not replicated or a region that does not respond.
        """
        deadline = time.monotonic() + seconds_in(within)
        while (backlog := self._unreplicated()) is not None:
            if time.monotonic() > deadline:
                raise RuntimeFailure(f"{backlog} after {within}")
            time.sleep(POLL_SECONDS)

    def await_state(self, region: str, *, topic: str | None = None, within: str = "30s", **state: int) -> int:
        """Wait until a region has reached a state of a protocol, and return its number of events.

        `state`: one name and number, such as `snapshot_round=2` (docs/SCENARIOS.md lists the names): the region has
        counted this many events since it was started; with `_more`, such as `update_sent_more=1`, since this call.
        `topic`: count events of this topic only. `within`: maximum time, as a duration such as `10s`. While the region
        is down, its return is waited for; it then counts from zero.

        Raises ValueError for a wrong state, topic or duration; RuntimeFailure after the time, with the number of
        events, or if the region is not in the run.
        """
        awaited, seconds = ProtocolState.of(state, topic), seconds_in(within)
        return self._background.run(await_state(self._runtime, region, awaited, seconds))

    def await_quiet(
        self, topic: str | None = None, subscription: str | None = None, *, within: str = "30s"
    ) -> None:
        """Wait until nothing changes any more without an action of a client or operator: every entry is stored and
        replicated, and no snapshot, update, delivery, transaction or metadata event is pending.

        `topic`, `subscription`: consider these only. `within`: maximum time, as a duration such as `10s`. Regions that
        are lost are left out; others that are down are waited for. Raises ValueError for an invalid name or duration;
        RuntimeFailure after the time, with all that is missing and why, or if no region has the topic.
        """
        self._await("quiet", topic, subscription, within)

    def await_replicated(
        self, topic: str | None = None, subscription: str | None = None, *, within: str = "30s"
    ) -> None:
        """Wait until every message that a region stores at the time of the call is stored in all regions that it is
        meant for. With `subscription`: and until no message that is acknowledged at that time is delivered again in
        another region after a fail-over. Parameters and errors are those of `await_quiet`."""
        self._await("replicated", topic, subscription, within)

    def await_snapshot(
        self, topic: str | None = None, subscription: str | None = None, *, within: str = "30s"
    ) -> None:
        """Start a snapshot in each region with a replicated subscription of the topic, and wait until all are complete.
        Parameters and errors are those of `await_quiet`."""
        self._await("snapshot", topic, subscription, within)

    def _await(self, condition: str, topic: str | None, subscription: str | None, within: str) -> None:
        seconds = seconds_in(within)
        self._background.run(await_condition(self._runtime, condition, topic, subscription, seconds))

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
        atexit.register(self.down)

    def _regions(self) -> tuple[RegionStatus, ...]:
        return self._background.run(self._runtime.status()).regions

    def _region(self, region: str) -> RegionStatus:
        select_regions(self._runtime.topology, [region], None)  # raises Refused for an unknown region
        return next(one for one in self._regions() if one.name == region)

    def _unreplicated(self) -> str | None:
        regions = self._regions()
        lost = {one.name for one in regions if one.state == "lost"}
        remaining = [one for one in regions if one.name not in lost]
        found = self._background.run(survey(remaining, read_topics_over_http))
        topics = sorted({topic for known in found.topics.values() for topic in known})
        backlogs = (backlog for topic in topics for backlog in found.unreplicated(topic, except_to=lost))
        return next(iter(found.silent), None) or next(backlogs, None)


class Tapped:
    """A tap in front of every region, returned by `Geo.tap`."""

    def __init__(
        self, background: Background, history: HistoryWriter, regions: Iterable[RegionStatus]
    ) -> None:
        self._background = background
        self._tap = Tap(history)
        opened = background.run(self._tap.open([(one.name, one.service_url) for one in regions]))
        self._urls = {one.name: one.service_url for one in opened}

    def url(self, region: str) -> str:
        """Return the service URL of the tap for a region. Raises KeyError for an unknown region."""
        return self._urls[region]

    def close(self) -> None:
        """Close the tap's connections and its history; `verify` and `down` do this, too. A second call has no
        effect."""
        self._background.run(self._tap.close())
        self._tap.history.close()
