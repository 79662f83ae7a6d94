"""Steps that begin when a region has reached a state of a protocol (`when`), in virtual time, with fake regions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from emulator.run.history_events import read_events
from emulator.runtimes.contract import RegionStatus
from emulator.scenarios.run_context import ScenarioResult

from .virtual import ScenarioHarness, now


class CountingRegion:
    """Responds like `/geoemu/v1/protocol-events/{event}`; `count` is a function of the virtual time."""

    def __init__(self, harness: ScenarioHarness, count: Callable[[float], int]) -> None:
        self._harness = harness
        self.count = count
        self.start = 0
        self.targets: list[str] = []
        harness.call_region = self.call_region  # type: ignore[method-assign]

    async def call_region(self, region: RegionStatus, method: str, path: str, body: Any) -> tuple[int, bytes]:
        self.targets.append(f"{region.name} {path}")
        query = parse_qs(urlsplit(path).query)
        deadline = now() + int(query["wait_ms"][0]) / 1000
        while self._harness.runtime.states[region.name] == "running":
            if self.count(now()) >= int(query["count"][0]) or now() >= deadline:
                return 200, json.dumps({"count": self.count(now()), "start": self.start}).encode()
            await asyncio.sleep(0.001)
        raise ConnectionRefusedError("nothing listens")


@pytest.fixture
def harness(tmp_path: Path) -> ScenarioHarness:
    return ScenarioHarness(tmp_path)


def run(harness: ScenarioHarness, *steps: str) -> ScenarioResult:
    return harness.run("\n".join(steps))


def begun(harness: ScenarioHarness) -> float:
    """Return the time at which the last step called the runtime."""
    return harness.runtime.times[-1]


def test_a_step_begins_within_milliseconds_of_the_state(harness: ScenarioHarness) -> None:
    region = CountingRegion(harness, lambda at: int(at / 3))
    result = run(harness, "kill: us-east", "when: {region: us-west, snapshot_round: 2, topic: orders}")
    assert result.completed, result.failure
    assert begun(harness) == pytest.approx(6.0, abs=0.003)
    target = "us-west /geoemu/v1/protocol-events/snapshot_round?count=2&wait_ms="
    first, *later = region.targets
    assert first.startswith(f"{target}0&topic=persistent%3A%2F%2Fpublic%2Fdefault%2Forders")
    assert {one.partition("&topic")[0] for one in later} == {f"{target}1000"}
    facts = list(read_events(harness.runtime.run_dir / "history" / "scenario.jsonl"))
    notes = [(one.region, one.topic, one.detail) for one in facts if one.op == "note"]
    orders = "persistent://public/default/orders"
    assert notes == [("us-west", orders, f"step 1 waited for snapshot_round 2 of {orders}: 2 counted")]
    kinds = [one.op for one in facts]
    assert kinds.index("note") < kinds.index("kill")


def test_events_before_a_step_count_only_without_more(harness: ScenarioHarness) -> None:
    CountingRegion(harness, lambda at: 10 + int(at))
    run(harness, "kill: us-east", "when: {region: us-west, takeover: 10}")
    assert begun(harness) < 0.01
    run(harness, "kill: us-east", "when: {region: us-west, takeover_more: 3}")
    assert begun(harness) == pytest.approx(3.0, abs=0.01)


def test_a_state_that_is_never_reached_fails_with_the_count(harness: ScenarioHarness) -> None:
    CountingRegion(harness, lambda at: 4)
    result = run(
        harness, "kill: us-east", "when: {region: us-west, update_sent: 5, within: 3s}", "start: us-east"
    )
    assert result.failure == (
        "step 1 (kill: us-east, when: {region: us-west, update_sent: 5, within: 3s}): "
        "update_sent is 4 of 5 in us-west within 3 s"
    )
    assert (result.steps_done, harness.runtime.requests) == (0, [])
    assert result.seconds == pytest.approx(3.0, abs=0.01)


def test_a_region_that_is_killed_during_the_wait_is_named_with_the_count(harness: ScenarioHarness) -> None:
    def count(at: float) -> int:
        if at >= 2.5:
            harness.runtime.states["us-west"] = "killed"
        return int(at)

    CountingRegion(harness, count)
    result = run(harness, "kill: us-east", "when: {region: us-west, update_sent: 5, within: 4s}")
    assert result.failure is not None
    assert result.failure.endswith("update_sent is 2 of 5 in us-west (killed) within 4 s")


@pytest.mark.parametrize(("state", "begins"), [("takeover: 5", 8.0), ("takeover_more: 3", 6.0)])
def test_a_region_that_returns_counts_from_zero(harness: ScenarioHarness, state: str, begins: float) -> None:
    """Four events until 2 s; down until 3 s; then one event each second."""
    region = CountingRegion(harness, lambda at: 4)

    def count(at: float) -> int:
        if at < 2:
            return 4
        if region.start == 0:
            harness.runtime.states["us-west"], region.start = "killed", 1
            asyncio.get_running_loop().call_later(1, harness.runtime.states.update, {"us-west": "running"})
        return int(at - 3)

    region.count = count
    result = run(harness, "kill: us-east", f"when: {{region: us-west, {state}}}")
    assert result.completed, result.failure
    assert begun(harness) == pytest.approx(begins, abs=0.1)


def test_a_region_that_is_paused_before_the_first_wait_ends_is_named_with_its_count(
    harness: ScenarioHarness,
) -> None:
    """The count used to be 0 and the state the one at the beginning, because no wait of a second had ended."""

    def count(at: float) -> int:
        if at >= 0.5:
            harness.runtime.states["us-west"] = "paused"
        return 30

    CountingRegion(harness, count)
    result = run(harness, "kill: us-east", "when: {region: us-west, takeover: 99, within: 900ms}")
    assert result.failure is not None
    assert result.failure.endswith("takeover is 30 of 99 in us-west (paused) within 0.9 s")


def test_two_steps_may_wait_for_the_same_state(harness: ScenarioHarness) -> None:
    CountingRegion(harness, lambda at: int(at))
    when = "when: {region: us-west, takeover: 2}"
    result = run(harness, "phase: both", when, "kill: us-east", when)
    assert result.completed, result.failure
    assert begun(harness) == pytest.approx(2.0, abs=0.01)


def test_an_actor_that_ends_unexpectedly_ends_the_wait(harness: ScenarioHarness) -> None:
    CountingRegion(harness, lambda at: 0)

    def break_later(actor: Any) -> None:
        asyncio.get_running_loop().call_later(1, setattr, actor, "problem", "fast has crashed")

    harness.prepare = break_later
    result = run(harness, "begin: fast", "kill: us-east", "when: {region: us-west, takeover: 2}")
    assert result.failure is not None
    assert "fast has crashed" in result.failure
    assert result.seconds < 2


def test_a_request_that_the_region_rejects_fails_the_step(harness: ScenarioHarness) -> None:
    harness.answers = lambda region, method: (404, b'{"reason": "not supported"}')
    result = run(harness, "kill: us-east", "when: {region: us-west, takeover: 2}")
    assert result.failure is not None
    assert "us-west responded to GET /geoemu/v1/protocol-events/takeover" in result.failure
    assert 'with 404 {"reason": "not supported"}' in result.failure
