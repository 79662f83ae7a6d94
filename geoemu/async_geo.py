"""A run for asynchronous programs: the methods of `Geo`, to be awaited.

Generated from `Geo` by `python -m scripts.async_api`. Do not edit.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from emulator.model.explanations import Explanation
from emulator.model.failover_plans import FailoverPlan, Translation
from emulator.run.service_contract import Contract
from emulator.runtimes.contract import RegionState
from emulator.scenarios.region_removal import RegionRemoval
from geoemu.asynchronous import AsyncFault, AsyncRun
from geoemu.run import Tapped
from geoemu.verdict import Verdict

_Client = TypeVar("_Client")


class AsyncGeo(AsyncRun):
    """A run, returned by `up_async` and `attach_async`. A method that is cancelled raises when its effect is complete.
    Faults are awaited, or end with the block of an `async with` statement."""

    def cut(self, a: str, b: str, *, one_way: bool = False) -> AsyncFault:
        """Drop all traffic from `a` to `b`, and back unless `one_way`. New connections fail; open ones stall."""
        return self._fault(lambda: self._geo.cut(a, b, one_way=one_way))

    def hold(self, a: str, b: str, *, one_way: bool = False) -> AsyncFault:
        """Queue traffic from `a` to `b`, and back unless `one_way`, until `heal` delivers it in order."""
        return self._fault(lambda: self._geo.hold(a, b, one_way=one_way))

    def latency(
        self, a: str, b: str, time: str, *, jitter: str | None = None, one_way: bool = False
    ) -> AsyncFault:
        """Set the one-way latency from `a` to `b`, and back unless `one_way`.

        `time` is a duration with its unit, such as `200ms`. `jitter` is the maximum random addition, also a duration;
        None: unchanged. Raises ValueError if a duration is invalid.
        """
        return self._fault(lambda: self._geo.latency(a, b, time, jitter=jitter, one_way=one_way))

    def bandwidth(self, a: str, b: str, limit: str, *, one_way: bool = False) -> AsyncFault:
        """Limit the bandwidth from `a` to `b`, and back unless `one_way`, to a value such as `500KB/s` or `unlimited`.
        From a region to `clients`, its clients read slowly. Raises ValueError if the value is invalid."""
        return self._fault(lambda: self._geo.bandwidth(a, b, limit, one_way=one_way))

    def stall(self, a: str, b: str, time: str, *, every: str, one_way: bool = False) -> AsyncFault:
        """Stall a link for `time` at intervals of `every`; both are durations, and `time` is the shorter one. Raises
        ValueError if a duration is invalid."""
        return self._fault(lambda: self._geo.stall(a, b, time, every=every, one_way=one_way))

    def flap(self, a: str, b: str, *, period: str, up: str = "50%", one_way: bool = False) -> AsyncFault:
        """Cut a link for a part of each period: it is up for `up` of the period, at its beginning. Raises ValueError if
        a value is invalid."""
        return self._fault(lambda: self._geo.flap(a, b, period=period, up=up, one_way=one_way))

    def profile(self, a: str, b: str, name: str, *, one_way: bool = False) -> AsyncFault:
        """Give a link the latency, jitter, bandwidth and stalls of a named profile: `same-continent`, `transatlantic`,
        `satellite` or `lossy-wifi`. Raises Refused, a RuntimeFailure, for other names."""
        return self._fault(lambda: self._geo.profile(a, b, name, one_way=one_way))

    async def reset(self, a: str, b: str) -> None:
        """Reset all open connections of a link (TCP RST); new ones work."""
        await self._call(lambda: self._geo.reset(a, b))

    def half_open(self, a: str, b: str) -> AsyncFault:
        """Let the open connections of a link stay open and carry nothing any more; new ones work. `heal` resets
        them."""
        return self._fault(lambda: self._geo.half_open(a, b))

    def drop(self, link: str, what: str, *, count: int = 1, nth: int = 1) -> AsyncFault:
        """Drop commands, receipts or markers, as a faulty peer does. Raises Refused for an invalid value."""
        return self._fault(lambda: self._geo.drop(link, what, count=count, nth=nth))

    def delay(self, link: str, what: str, by: str, *, count: int = 1, nth: int = 1) -> AsyncFault:
        """Delay commands, receipts or markers by a duration such as `2s`; later ones overtake them. Raises ValueError
        or Refused for an invalid value."""
        return self._fault(lambda: self._geo.delay(link, what, by, count=count, nth=nth))

    def duplicate(self, link: str, what: str, *, count: int = 1, nth: int = 1) -> AsyncFault:
        """Send commands, receipts or markers twice. Raises Refused for an invalid value."""
        return self._fault(lambda: self._geo.duplicate(link, what, count=count, nth=nth))

    def reorder(self, link: str, what: str, *, count: int = 1, nth: int = 1) -> AsyncFault:
        """Swap commands, receipts or markers with the next one. Raises Refused for an invalid value."""
        return self._fault(lambda: self._geo.reorder(link, what, count=count, nth=nth))

    async def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Undo all faults of links between two ends in both directions, or of all links, and wait until running regions
        are linked again. Raises TypeError if only one end is named."""
        await self._call(lambda: self._geo.heal(a, b))

    def kill(self, *regions: str, cluster: str | None = None) -> AsyncFault:
        """Kill regions with SIGKILL; unflushed state is lost."""
        return self._fault(lambda: self._geo.kill(*regions, cluster=cluster))

    def lose(self, *regions: str, cluster: str | None = None) -> AsyncFault:
        """Kill regions permanently with SIGKILL: the run no longer waits for them, and the report shows the lost
        messages."""
        return self._fault(lambda: self._geo.lose(*regions, cluster=cluster))

    def stop(self, *regions: str, cluster: str | None = None) -> AsyncFault:
        """Stop regions gracefully."""
        return self._fault(lambda: self._geo.stop(*regions, cluster=cluster))

    async def start(self, *regions: str, cluster: str | None = None) -> None:
        """Start killed, stopped or lost regions with their stored logs, and wait until they are ready."""
        await self._call(lambda: self._geo.start(*regions, cluster=cluster))

    async def restart(self, *regions: str, cluster: str | None = None) -> None:
        """Stop regions gracefully, start them again, and wait until they are ready."""
        await self._call(lambda: self._geo.restart(*regions, cluster=cluster))

    def pause(self, *regions: str, cluster: str | None = None) -> AsyncFault:
        """Freeze regions: their connections stay open, and they send no responses."""
        return self._fault(lambda: self._geo.pause(*regions, cluster=cluster))

    async def resume(self, *regions: str, cluster: str | None = None) -> None:
        """Resume paused regions, and wait until they are ready."""
        await self._call(lambda: self._geo.resume(*regions, cluster=cluster))

    def power_loss(self, *regions: str, cluster: str | None = None) -> AsyncFault:
        """Kill regions as a power loss of their machines does: what no completed sync covers is dropped. A log in Kafka
        is not affected."""
        return self._fault(lambda: self._geo.power_loss(*regions, cluster=cluster))

    def disk(self, region: str, state: str, *, by: str | None = None) -> AsyncFault:
        """Make a region's disk `slow`, `full` or `failing`; `healthy` ends it. `by`: duration by which each write to a
        slow disk takes longer, such as `200ms`. Raises ValueError if the state or the duration is invalid."""
        return self._fault(lambda: self._geo.disk(region, state, by=by))

    def skew(self, region: str, ahead_ms: int, *, drift: str | None = None) -> AsyncFault:
        """Offset a region's wall clock by milliseconds, ahead or (negative) behind; 0 corrects it. `drift`: what it
        gains from now on, such as `200ppm`. Timers are unaffected. Raises ValueError if the drift is invalid."""
        return self._fault(lambda: self._geo.skew(region, ahead_ms, drift=drift))

    async def repair(self) -> None:
        """End all faults: resume and start regions, also lost ones, correct disks and clocks, heal links. Wait until
        the regions are ready and linked. Has no effect if there is no fault, or the run has ended."""
        await self._call(lambda: self._geo.repair())

    async def drain(self, within: str = "10s") -> None:
        """Wait until replication between all regions that are not lost has caught up.

        `within`: maximum time, as a duration such as `10s`. Raises RuntimeFailure after that time, with a backlog that
        is not replicated or a region that does not respond.
        """
        await self._call(lambda: self._geo.drain(within))

    async def await_state(
        self, region: str, *, topic: str | None = None, within: str = "30s", **state: int
    ) -> int:
        """Wait until a region has reached a state of a protocol, and return its number of events.

        `state`: one name and number, such as `snapshot_round=2` (docs/SCENARIOS.md lists the names): the region has
        counted this many events since it was started; with `_more`, such as `update_sent_more=1`, since this call.
        `topic`: count events of this topic only. `within`: maximum time, as a duration such as `10s`. While the region
        is down, its return is waited for; it then counts from zero.

        Raises ValueError for a wrong state, topic or duration; RuntimeFailure after the time, with the number of
        events, or if the region is not in the run.
        """
        return await self._call(lambda: self._geo.await_state(region, topic=topic, within=within, **state))

    async def await_quiet(
        self, topic: str | None = None, subscription: str | None = None, *, within: str = "30s"
    ) -> None:
        """Wait until nothing changes any more without an action of a client or operator: every entry is stored and
        replicated, and no snapshot, update, delivery, transaction or metadata event is pending.

        `topic`, `subscription`: consider these only. `within`: maximum time, as a duration such as `10s`. Regions that
        are lost are left out; others that are down are waited for. Raises ValueError for an invalid name or duration;
        RuntimeFailure after the time, with all that is missing and why, or if no region has the topic.
        """
        await self._call(lambda: self._geo.await_quiet(topic, subscription, within=within))

    async def await_replicated(
        self, topic: str | None = None, subscription: str | None = None, *, within: str = "30s"
    ) -> None:
        """Wait until every message that a region stores at the time of the call is stored in all regions that it is
        meant for. With `subscription`: and until no message that is acknowledged at that time is delivered again in
        another region after a fail-over. Parameters and errors are those of `await_quiet`."""
        await self._call(lambda: self._geo.await_replicated(topic, subscription, within=within))

    async def await_snapshot(
        self, topic: str | None = None, subscription: str | None = None, *, within: str = "30s"
    ) -> None:
        """Start a snapshot in each region with a replicated subscription of the topic, and wait until all are complete.
        Parameters and errors are those of `await_quiet`."""
        await self._call(lambda: self._geo.await_snapshot(topic, subscription, within=within))

    async def url(self, region: str) -> str:
        """Return the service URL of a region, for Pulsar clients. Raises RuntimeFailure for an unknown region."""
        return await self._call(lambda: self._geo.url(region))

    async def client_options(self, region: str) -> dict[str, Any]:
        """Return the arguments of `pulsar.Client` for a region with TLS or authentication, empty for any other:
        `pulsar.Client(geo.url("us"), **geo.client_options("us"))`. They name the files of `security.client`."""
        return await self._call(lambda: self._geo.client_options(region))

    async def admin_url(self, region: str) -> str:
        """Return the URL of a region's admin API. Raises RuntimeFailure for an unknown region."""
        return await self._call(lambda: self._geo.admin_url(region))

    async def state(self, region: str) -> RegionState:
        """Return the current state of a region: starting, running, paused, stopped, killed or lost. Raises
        RuntimeFailure for an unknown region."""
        return await self._call(lambda: self._geo.state(region))

    def recorded(self, client: _Client, *, actor: str | None = None) -> _Client:
        """Return a client that behaves like `client` and records its operations in this run, as `geoemu.recorded` does.

        `actor`: name of the history file; None: as for `geoemu.recorded`. Raises RuntimeFailure if the client's service
        URL belongs to no region of the run.
        """
        return self._geo.recorded(client, actor=actor)

    async def tap(self, name: str = "wire") -> Tapped:
        """Start a tap, which records every client that connects to its URLs, in any language (docs/OWN_SERVICE.md).

        `name`: name of the history file. Raises RuntimeFailure if another tap writes this file.
        """
        return await self._call(lambda: self._geo.tap(name))

    async def environment(self, region: str, *, actor: str) -> dict[str, str]:
        """Return the environment variables for a program that works in a region: GEOEMU_SERVICE_URL and others
        (docs/OWN_SERVICE.md). `actor` is the name under which the program is recorded."""
        return await self._call(lambda: self._geo.environment(region, actor=actor))

    async def create_namespace(self, name: str | None = None) -> str:
        """Create a namespace with deduplication that is replicated between all regions, and return its name,
        `tenant/name`. None: a new name in the first tenant of the topology.

        Raises RuntimeFailure if it exists, or if a region does not respond or rejects it; other regions may have it.
        """
        return await self._call(lambda: self._geo.create_namespace(name))

    async def backlog(self, region: str, topic: str, subscription: str) -> int | None:
        """Return the number of unacknowledged messages of a subscription in a region; None if the region does not have
        the subscription or does not respond."""
        return await self._call(lambda: self._geo.backlog(region, topic, subscription))

    async def explain(self, kind: str, *name: str, region: str | None = None) -> dict[str, Explanation]:
        """Return the state of an object, and why it is so, by region: `explain("subscription", "orders", "billing")`.
        Regions that do not respond, or do not have the object, are left out.

        `kind`, `name`: as for `geoemu explain`. `region`: query this region only. Raises ConfigurationError if the kind
        or the region is unknown, or no region has the object; RuntimeFailure if no region responds.
        """
        return await self._call(lambda: self._geo.explain(kind, *name, region=region))

    async def failover_plan(self, topic: str, subscription: str, *, from_: str, to: str) -> FailoverPlan:
        """Return what happens if the consumers of a subscription leave region `from_` now and continue in region `to`,
        and record it: the verdict compares the plan with what follows.

        `topic`: a topic, or one partition of a topic. The plan of a partitioned topic is a PartitionedPlan: the sums,
        and the plans of its `partitions`. Raises RuntimeFailure if `to` does not respond or a name is unknown. If
        `from_` does not respond, the plan is an upper bound.
        """
        return await self._call(lambda: self._geo.failover_plan(topic, subscription, from_=from_, to=to))

    async def translate(self, topic: str, position: str, *, from_: str, to: str) -> Translation:
        """Return the place of an entry of region `from_` in the log of region `to`: exact if it is stored there,
        otherwise bounds.

        `position`: `ledger:entry` in `from_`. Raises RuntimeFailure if a name or the position is unknown, or neither
        region responds.
        """
        return await self._call(lambda: self._geo.translate(topic, position, from_=from_, to=to))

    async def remove_region(self, region: str) -> RegionRemoval:
        """Take a region that will not return out of all namespaces and topics, and return what may be lost with it. The
        other regions refuse it if it returns.

        Raises RuntimeFailure if the region is connected to another one or is unknown, or if no other region responds.
        """
        return await self._call(lambda: self._geo.remove_region(region))

    async def seal(self, *actors: str) -> None:
        """Close the histories of programs that were killed; their pending operations stay unknown. Raises
        RuntimeFailure if an actor has no history or is still running."""
        await self._call(lambda: self._geo.seal(*actors))

    async def verify(
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
        return await self._call(
            lambda: self._geo.verify(
                stop=stop, expect=expect, report=report, engine=engine, contract=contract
            )
        )

    async def down(self) -> None:
        """Stop all regions and end the run; its directory stays. A second call has no effect."""
        await self._call(lambda: self._geo.down())
