"""Waits of a program for a state or condition of a run."""

from __future__ import annotations

import time

from emulator.errors import RuntimeFailure
from emulator.model.protocol_events import ProtocolState
from emulator.model.units import seconds_in
from emulator.scenarios.await_conditions import await_condition
from emulator.scenarios.region_queries import await_state, read_topics_over_http, survey
from geoemu.faults import Faults

POLL_SECONDS = 0.1


class Waits(Faults):
    """The methods of `Geo` that wait."""

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

    def _unreplicated(self) -> str | None:
        regions = self._background.run(self._runtime.status()).regions
        lost = {one.name for one in regions if one.state == "lost"}
        remaining = [one for one in regions if one.name not in lost]
        found = self._background.run(survey(remaining, read_topics_over_http))
        topics = sorted({topic for known in found.topics.values() for topic in known})
        backlogs = (backlog for topic in topics for backlog in found.unreplicated(topic, except_to=lost))
        return next(iter(found.silent), None) or next(backlogs, None)
