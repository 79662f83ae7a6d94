"""Waits for conditions of a whole run: asks every region for its part, and combines the responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from emulator.errors import Refused, RuntimeFailure
from emulator.model.conditions import CONDITIONS, ConditionState
from emulator.model.suggestions import nearest
from emulator.model.values import TopicName
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.scenarios.region_queries import ANSWER_CHARACTERS, CallRegion, call_over_http

POLL_SECONDS: Final = 0.05
GROUPING_SECONDS: Final = 0.15
"""Time before the first request. Released clients send acknowledgements in groups, up to 0.1 s after their programs
acknowledged: what a program acknowledged before the wait has arrived by then."""
COMPARE_SECONDS: Final = 10.0
"""Maximum time for one response: a region may read its log for it."""
REASONS_MAX: Final = 8
"""Maximum number of missing things that the message after the time names."""
GetRegions = Callable[[], Awaitable[tuple[RegionStatus, ...]]]


class ConditionWait:
    """Waits until a condition holds in all regions that are not lost. A region that is down is waited for."""

    def __init__(
        self,
        call_region: CallRegion,
        get_regions: GetRegions,
        condition: str,
        topic: str | None,
        subscription: str | None,
    ) -> None:
        """Raises ValueError for an unknown condition, an invalid topic, or a subscription without a topic."""
        if condition not in CONDITIONS:
            hint = nearest(condition, CONDITIONS)
            meant = f"; did you mean {hint}?" if hint else ""
            raise ValueError(f"{condition[:100]!r} is none of {', '.join(CONDITIONS)}{meant}")
        if subscription is not None and topic is None:
            raise ValueError(f"subscription {subscription[:100]!r} requires a topic")
        self._call_region = call_region
        self._get_regions = get_regions
        self._condition = condition
        self._topic = None if topic is None else str(TopicName.parse(topic))
        self._subscription = subscription
        self._goals: dict[str, Mapping[str, Any]] = {}
        """Region -> goal of its last response."""
        self._done: set[str] = set()
        """Regions whose part was complete once. Not for `quiet`, which must hold in all regions at once."""
        self._activity: list[int] | None = None
        """Activity of all regions in the last round, if the condition held then."""
        self.missing: list[str] = []
        """What was missing in the last round: one sentence each."""

    async def run(self, seconds: float) -> bool:
        """Wait up to `seconds`, and return whether the condition was reached. Raises Refused if no region has the
        topic, RuntimeFailure if a region rejects the request."""
        deadline = asyncio.get_running_loop().time() + seconds
        await asyncio.sleep(min(GROUPING_SECONDS, seconds))
        while not await self._holds():
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def _holds(self) -> bool:
        """Ask all regions once."""
        regions = await self._get_regions()
        lost = [one.name for one in regions if one.state == "lost"]
        asked = [one for one in regions if one.name not in self._done and one.name not in lost]
        responses = await asyncio.gather(*(self._ask(region, lost) for region in asked))
        states = [one for one in responses if isinstance(one, ConditionState)]
        self.missing = [one for one in responses if isinstance(one, str)]
        self.missing += [sentence for state in states for sentence in state.missing]
        self._check_known(states, complete=len(states) == len(asked))
        if self._condition == "replicated" and self._subscription is not None:
            if not self.missing:
                self.missing = await self._redelivered(asked, states, lost)
            return not self.missing
        if self._condition != "quiet":
            self._done.update(state.region for state in states if not state.missing)
            return not self.missing
        before = self._activity
        self._activity = None if self.missing else [state.activity for state in states]
        if not self.missing and before != self._activity:
            self.missing = ["entries or acknowledgements were stored a moment ago"]
        return not self.missing

    def _check_known(self, states: list[ConditionState], *, complete: bool) -> None:
        """Raise Refused when every region responded and none has the topic, or the subscription is nowhere."""
        if self._topic is None or not complete or self._done:
            return
        if not any(state.topics for state in states):
            raise Refused(f"no region has topic {self._topic}")
        if not any(state.has_subscription for state in states):
            raise Refused(f"no region has subscription {self._subscription} of {self._topic}")
        if self._condition == "snapshot" and not any(any(state.goal.values()) for state in states):
            what = "no subscription" if self._subscription is None else f"subscription {self._subscription}"
            verb = "is" if self._subscription is None else "is not"
            raise Refused(f"{what} of {self._topic} {verb} replicated, so no region takes snapshots")

    async def _redelivered(
        self, regions: list[RegionStatus], states: list[ConditionState], lost: list[str]
    ) -> list[str]:
        """Return which acknowledged messages of a region would be delivered again in another one. Each region compares
        its goal with what each other region states of itself."""
        topics_of = {state.region: state.topics for state in states}
        pairs = [
            (source, target, topic)
            for source in regions
            for target in regions
            if source is not target
            for topic in set(topics_of[source.name]) & set(topics_of[target.name])
        ]
        found = await asyncio.gather(*(self._compare(*pair, lost) for pair in pairs))
        return sorted({sentence for sentences in found for sentence in sentences})

    async def _compare(
        self, source: RegionStatus, target: RegionStatus, topic: str, lost: list[str]
    ) -> tuple[str, ...]:
        name = TopicName.parse(topic)
        words = (name.tenant, name.namespace, name.topic, self._subscription or "")
        path = "/".join(quote(word, safe="") for word in words)
        query = f"?source={quote(source.name, safe='')}"
        state = await self._call(target, "GET", f"/geoemu/v1/delivery-state/{path}{query}", None)
        if isinstance(state, str):
            return (state,)
        response = await self._ask(source, lost, topic, state)
        return (response,) if isinstance(response, str) else response.missing

    async def _call(self, region: RegionStatus, method: str, target: str, body: Any) -> dict[str, Any] | str:
        """Return the decoded response of a region, or why there is none. Raises RuntimeFailure for an error."""
        try:
            status, content = await self._call_region(region, method, target, body)
        except OSError as problem:
            return f"{region.name} does not respond: {problem}"
        if status != HTTPStatus.OK:
            excerpt = content.decode(errors="replace")[:ANSWER_CHARACTERS]
            raise RuntimeFailure(f"{region.name} responded to {method} {target} with {status} {excerpt}")
        found: dict[str, Any] = json.loads(content)
        return found

    async def _ask(
        self,
        region: RegionStatus,
        lost: list[str],
        topic: str | None = None,
        target: Mapping[str, Any] | None = None,
    ) -> ConditionState | str:
        """Return the region's part, or why there is no response. `topic`: one topic of the condition; None: all.
        `target`: state of another region, to compare with."""
        if region.state not in ("running", "paused"):
            return f"{region.name} is {region.state}"
        body = {
            "topic": topic or self._topic,
            "subscription": self._subscription,
            "lost": lost,
            "goal": self._goals.get(region.name, {}),
            "target": target,
        }
        response = await self._call(region, "POST", f"/geoemu/v1/conditions/{self._condition}", body)
        if isinstance(response, str):
            return response
        state = ConditionState.from_json(response)
        self._goals[region.name] = {**self._goals.get(region.name, {}), **state.goal}
        return state

    def describe(self) -> str:
        """Return what is missing, as one sentence."""
        shown, more = self.missing[:REASONS_MAX], len(self.missing) - REASONS_MAX
        subject = " ".join(filter(None, [self._topic, self._subscription]))
        of_subject = f" of {subject}" if subject else ""
        rest = f"; and {more} more" if more > 0 else ""
        return f"{self._condition}{of_subject} is not reached: {'; '.join(shown)}{rest}"


async def await_condition(
    runtime: Runtime, condition: str, topic: str | None, subscription: str | None, seconds: float
) -> None:
    """Wait until a condition holds in a run. Raises RuntimeFailure, which names what is missing, after `seconds`;
    ValueError for an unknown condition or an invalid name; Refused for a topic that no region has."""

    async def get_regions() -> tuple[RegionStatus, ...]:
        return (await runtime.status()).regions

    call = partial(call_over_http, seconds=COMPARE_SECONDS)
    wait = ConditionWait(call, get_regions, condition, topic, subscription)
    if not await wait.run(seconds):
        raise RuntimeFailure(f"{wait.describe()}; waited {seconds:g} s")
