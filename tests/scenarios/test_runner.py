"""The runner, in virtual time, with fake regions and actors."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from emulator.run.history_events import HistoryEvent, read_events
from emulator.scenarios.actors.specs import ActorSpec
from emulator.scenarios.progress import describe_end
from emulator.scenarios.run_context import ScenarioEnvironment, ScenarioResult
from emulator.scenarios.runner import execute_scenario
from emulator.scenarios.scenario import parse_scenario

from .virtual import (
    TOPOLOGY,
    PretendedActor,
    ScenarioHarness,
    in_virtual_time,
    scenario_text,
    topic_status,
)


@pytest.fixture
def harness(tmp_path: Path) -> ScenarioHarness:
    return ScenarioHarness(tmp_path)


def facts(harness: ScenarioHarness) -> list[HistoryEvent]:
    return list(read_events(harness.runtime.run_dir / "history" / "scenario.jsonl"))


def failure_of(result: ScenarioResult) -> str:
    assert result.failure is not None
    return result.failure


def test_the_scenario_goes_through_all_its_steps(harness: ScenarioHarness) -> None:
    """The steps of region-failover.yaml reach regions and actors in order."""
    result = harness.run("""
        phase: all works
        begin: billing
        begin: [fast, slow]
        wait_until: {subscription: billing, exists_in: us-west}
        wait_until: {consumer: billing, received: 250}
        kill: us-east
        move: {consumer: billing, to: us-west}
        wait_until: {consumer: billing, received_more: 100}
        start: us-east
        wait_until: {producer: fast, published_more: 100}
        finish: producers
        drain: 10s
    """)
    assert result.completed, result.failure
    assert result.steps_done == 12
    assert harness.runtime.requests == ["kill us-east", "start us-east"]
    assert harness.actors["billing"].requests == ["begin pulsar://us-east", "move pulsar://us-west", "leave"]
    assert harness.actors["fast"].requests == ["begin pulsar://us-east", "finish", "leave"]
    assert harness.actors["slow"].requests == ["begin pulsar://eu-central", "finish", "leave"]
    assert "short" not in harness.actors
    assert result.counts["billing"].region == "us-west"
    assert 5.5 < result.seconds < 6.5


def test_faults_and_moves_become_facts_of_the_history(harness: ScenarioHarness) -> None:
    harness.run("""
        phase: it begins
        begin: billing
        kill: us-east
        move: {consumer: billing, to: us-west}
        pause: eu-central
        resume: eu-central
        start: us-east
        restart: us-west
        stop: us-west
        cut: [us-east, us-west]
        hold: {from: us-east, to: eu-central}
        latency: {between: [us-east, us-west], is: 250ms, jitter: 20ms}
        latency: {from: us-west, to: us-east, is: 0.5s}
        profile: {between: [us-east, eu-central], is: satellite}
        heal: [us-east, us-west]
        heal: all
    """)
    found = [
        (fact.op, fact.region, fact.other_region, fact.detail)
        for fact in facts(harness)
        if fact.op not in ("step", "hire")
    ]
    assert found == [
        ("phase", None, None, "play of example begins"),
        ("phase", None, None, "it begins"),
        ("kill", "us-east", None, None),
        ("move", "us-west", "us-east", "billing begins to move"),
        ("move", "us-west", "us-east", "billing has moved"),
        ("pause", "eu-central", None, None),
        ("resume", "eu-central", None, None),
        ("start", "us-east", None, None),
        ("restart", "us-west", None, None),
        ("stop", "us-west", None, None),
        ("cut", "us-east", "us-west", "both ways"),
        ("hold", "us-east", "eu-central", "one way"),
        ("latency", "us-east", "us-west", "250 ms both ways"),
        ("latency", "us-west", "us-east", "500 ms one way"),
        ("profile", "us-east", "eu-central", "satellite, 300 ms both ways"),
        ("heal", "us-east", "us-west", None),
        ("heal", None, None, "everything"),
        ("phase", None, None, "play of example ends: every step completed"),
    ]
    assert {fact.outcome for fact in facts(harness)} == {"fact"}
    assert harness.runtime.requests[-7:] == [
        "change_links us-east->us-west us-west->us-east state=cut",
        "change_links us-east->eu-central state=held",
        "change_links us-east->us-west us-west->us-east latency_ms=250.0 jitter_ms=20.0",
        "change_links us-west->us-east latency_ms=500.0",
        "change_links us-east->eu-central eu-central->us-east latency_ms=300 jitter_ms=70 "
        "bandwidth_bytes_per_second=1250000 stall_every_ms=0.0 stall_ms=0.0 flap_period_ms=0.0 flap_up=1.0",
        "heal us-east->us-west us-west->us-east",
        "heal",
    ]


def test_a_condition_that_never_holds_ends_the_run_with_its_progress(
    harness: ScenarioHarness,
) -> None:
    result = harness.run("""
        begin: [fast, billing]
        wait_until: {consumer: billing, received: 600, within: 5s}
        kill: us-east
    """)
    step = "step 2 (wait_until: {consumer: billing, received: 600, within: 5s})"
    assert failure_of(result) == f"{step}: 500 of 600 within 5 s"
    assert (result.steps_done, result.completed) == (1, False)
    assert harness.runtime.requests == [], "no step runs after a failed one"
    assert [actor.requests[-1] for actor in harness.actors.values()] == ["leave", "leave"]
    assert [fact.error for fact in facts(harness) if fact.error] == [result.failure]
    assert str(facts(harness)[-1].detail).endswith(failure_of(result))
    assert result.counts["fast"].ok == 500, "the evidence so far"


@pytest.mark.parametrize(
    ("command", "steps", "sentence"),
    [
        (
            "begin",
            "begin: {actors: producers, within: 2s}",
            "fast: no connection to us-east, slow: no connection to eu-central,"
            " short: no connection to us-west within 2 s",
        ),
        (
            "finish",
            "begin: fast\nwait: 1s\nfinish: {actors: fast, within: 2s}",
            "fast: 0 publishes still pending within 2 s",
        ),
        (
            "move",
            "begin: billing\nmove: {consumer: billing, to: us-west, within: 2s}",
            "billing: no connection to us-west within 2 s",
        ),
    ],
)
def test_an_actor_that_does_not_answer_fails_its_step_at_the_deadline(
    harness: ScenarioHarness, command: str, steps: str, sentence: str
) -> None:
    harness.prepare = lambda actor: actor.ignores.add(command)
    assert failure_of(harness.run(steps)).endswith(f": {sentence}")


def test_an_actor_that_refuses_fails_its_step_at_once(harness: ScenarioHarness) -> None:
    harness.prepare = lambda actor: actor.refuses.add("begin")
    result = harness.run("begin: [fast, billing]")
    assert failure_of(result).endswith("): fast does not begin; billing does not begin")
    assert result.seconds < 1


def test_a_wait_ends_when_an_actor_is_gone(harness: ScenarioHarness) -> None:
    """It does not wait for the rest of its minute."""
    dies_after(harness, 2.1)
    result = harness.run(
        "begin: [fast, billing]\nwait_until: {consumer: billing, received: 9000, within: 1m}"
    )
    assert failure_of(result).endswith(f" of 9000 when {DEATH}")
    assert result.seconds < 3


DEATH = "actor fast ended unexpectedly, exit code -11"


def dies_after(harness: ScenarioHarness, seconds: float) -> None:
    """Let the producer `fast` die, after this time from its start."""

    def will_die(actor: PretendedActor) -> None:
        if actor.part.name == "fast":
            asyncio.get_running_loop().call_later(seconds, setattr, actor, "problem", DEATH)

    harness.prepare = will_die


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("wait: 1m", DEATH),
        ("finish: {actors: billing, within: 1m}", DEATH),
        ("move: {consumer: billing, to: us-west}", DEATH),
        ("kill: {region: us-west, within: 1m}", DEATH),
    ],
)
def test_every_step_fails_as_soon_as_an_actor_is_gone(
    harness: ScenarioHarness, step: str, sentence: str
) -> None:
    dies_after(harness, 2.1)
    announced = harness.prepare

    def prepare(actor: PretendedActor) -> None:
        announced(actor)
        actor.ignores |= {"finish", "move"}

    harness.prepare = prepare
    harness.runtime.hangs.add("kill")
    result = harness.run(f"begin: [fast, billing]\n{step}")
    assert failure_of(result) == f"step 2 ({step}): {sentence}"
    assert result.seconds < 3


def test_an_actor_that_is_gone_when_a_step_is_done_fails_that_step(harness: ScenarioHarness) -> None:
    dies_after(harness, 0.58)
    result = harness.run("begin: fast\nkill: us-west\nphase: never")
    assert failure_of(result) == f"step 2 (kill: us-west): {DEATH}"


def test_an_actor_that_fails_after_the_last_step_fails_the_run(harness: ScenarioHarness) -> None:
    class FailsWhenItLeaves(PretendedActor):
        async def leave(self) -> None:
            await super().leave()
            self.problem = DEATH

    def create_actor(part: ActorSpec) -> PretendedActor:
        actor = harness.actors[part.name] = FailsWhenItLeaves(part)
        return actor

    harness.create_actor = create_actor  # type: ignore[method-assign]
    result = harness.run("begin: fast\nwait: 1s")
    assert failure_of(result) == f"after the last step: {DEATH}"
    assert describe_end(result) == f"failed after 1.1 s, after the last step: {DEATH}"
    assert [fact.error for fact in facts(harness) if fact.error] == [result.failure]
    assert facts(harness)[-1].detail == f"play of example ends: {result.failure}"


def test_a_region_that_cannot_be_started_fails_the_step_with_the_runtimes_reason(
    harness: ScenarioHarness,
) -> None:
    harness.runtime.fails["start"] = "port 6650 is taken; free it"
    assert failure_of(harness.run("kill: us-east\nstart: us-east")) == (
        "step 2 (start: us-east): port 6650 is taken; free it"
    )


def test_a_runtime_that_hangs_fails_the_step_at_its_deadline(harness: ScenarioHarness) -> None:
    harness.runtime.hangs.add("kill")
    result = harness.run("kill: {region: us-east, within: 3s}")
    assert failure_of(result).endswith("): not completed for us-east within 3 s")
    assert result.seconds == pytest.approx(3)


def test_drain_waits_for_backlogs_of_regions_and_subscriptions(harness: ScenarioHarness) -> None:
    def topics(region: str) -> object:
        left = max(0, 300 - int(asyncio.get_running_loop().time() * 100))
        return topic_status(
            backlogs={"us-west": left if region == "us-east" else 0}, unacknowledged={"billing": left}
        )

    harness.topics = topics  # type: ignore[assignment]
    result = harness.run("begin: [billing, short]\ndrain: 10s")
    assert result.completed, result.failure
    assert 3 < result.seconds < 3.5


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"backlogs": {"us-west": 7}},
            "7 entries of persistent://public/default/orders not replicated from eu-central to us-west",
        ),
        ({"unacknowledged": {"billing": 3}}, "billing has not acknowledged 3 messages in us-east"),
        ({"unacknowledged": {}}, "us-east does not have subscription billing"),
        (
            {"topic": "persistent://public/default/other"},
            "us-east does not have topic persistent://public/default/orders",
        ),
    ],
)
def test_a_drain_that_times_out_reports_the_remaining_backlog(
    harness: ScenarioHarness, change: dict[str, object], sentence: str
) -> None:
    place = "eu-central" if "backlogs" in change else "us-east"
    harness.topics = lambda region: topic_status(**change) if region == place else topic_status()
    result = harness.run("begin: [billing, short]\ndrain: 2s")
    assert failure_of(result) == f"step 2 (drain: 2s): {sentence} within 2 s"


def test_a_drain_waits_for_regions_that_are_down_or_silent(harness: ScenarioHarness) -> None:
    harness.topics = lambda region: OSError("refused") if region == "us-west" else topic_status()
    steps = "begin: [billing, short]\ndrain: 2s"
    assert failure_of(harness.run(steps)).endswith("): us-west does not respond: refused within 2 s")
    assert failure_of(harness.run("kill: us-east\ndrain: 2s")).endswith("): us-east is killed within 2 s")


def test_a_drain_does_without_a_region_that_is_lost(harness: ScenarioHarness) -> None:
    harness.topics = lambda region: topic_status(backlogs={"us-east": 7})
    result = harness.run("""
        begin: [billing, short]
        lose: us-east
        move: {consumer: billing, to: us-west}
        drain: 2s
    """)
    assert result.completed, result.failure


def test_a_consumer_that_stays_in_a_lost_region_never_drains(harness: ScenarioHarness) -> None:
    result = harness.run("begin: [billing, short]\nlose: us-east\ndrain: 2s")
    assert "billing is consumed in us-east, which is lost: move its consumer" in failure_of(result)


def test_several_regions_and_whole_clusters_are_one_step(harness: ScenarioHarness) -> None:
    result = harness.run("kill: [us-west, eu-central]\nlose: {cluster: americas}")
    assert result.completed, result.failure
    assert set(harness.runtime.requests) == {
        "kill us-west",
        "kill eu-central",
        "lose us-east",
        "lose us-west",
    }
    assert result.seconds < 1.5, "all of a step at once"


def test_a_step_that_some_regions_miss_names_them(harness: ScenarioHarness) -> None:
    harness.runtime.hangs.add("lose")
    result = harness.run("lose: {cluster: americas, within: 1s}")
    assert "not completed for us-east, us-west within 1 s" in failure_of(result)


def test_a_drain_is_not_fooled_by_a_moment_of_calm(harness: ScenarioHarness) -> None:
    """Regions are queried one after the other: a message that left one may not have arrived in the next."""
    looks = iter(range(10_000))

    def topics(region: str) -> object:
        return topic_status(backlogs={"us-west": next(looks) // 3 % 2})

    harness.topics = topics  # type: ignore[assignment]
    assert not harness.run("begin: [billing, short]\ndrain: 2s").completed


def test_a_subscription_that_does_not_appear_fails_with_the_reason_that_regions_give(
    harness: ScenarioHarness,
) -> None:
    harness.topics = lambda region: (
        topic_status(unacknowledged={})
        if region == "us-west"
        else topic_status(why_not_replicated={"billing": "no snapshot completed: eu-central did not answer"})
    )
    result = harness.run(
        "begin: billing\nwait_until: {subscription: billing, exists_in: us-west, within: 1s}"
    )
    assert failure_of(result).endswith(
        "): not there yet; us-west does not have it;"
        " reason from us-east: no snapshot completed: eu-central did not answer;"
        " reason from eu-central: no snapshot completed: eu-central did not answer within 1 s"
    )


def test_the_observer_sees_steps_and_counts_as_they_change(harness: ScenarioHarness) -> None:
    harness.run("begin: fast\nkill: us-west\nwait: 2s")
    assert harness.watcher.steps == ["begin 0.10", "kill 0.50", "wait 2.00"]
    seen = [snapshot.actors[0][1].ok for snapshot in harness.watcher.snapshots if snapshot.actors]
    assert seen == sorted(seen)
    assert len(set(seen)) >= 8
    assert harness.watcher.snapshots[-1].regions[1].state == "killed"


def test_a_cancelled_run_makes_its_actors_leave_first(harness: ScenarioHarness) -> None:
    scenario = parse_scenario(scenario_text("begin: [fast, billing]\nwait: 1m"), TOPOLOGY)

    async def interrupted() -> None:
        environment = ScenarioEnvironment(create_actor=harness.create_actor, read_topics=harness.read_topics)
        async with asyncio.timeout(5):
            await execute_scenario(scenario, harness.runtime, harness.watcher, environment)

    with pytest.raises(TimeoutError):
        in_virtual_time(interrupted())
    assert [actor.requests[-1] for actor in harness.actors.values()] == ["leave", "leave"]
    assert facts(harness)[-1].detail == "play of example ends: interrupted"


def test_an_observer_with_a_bug_does_not_go_unnoticed(harness: ScenarioHarness) -> None:
    def broken(snapshot: object) -> None:
        raise ZeroDivisionError

    harness.watcher.snapshot_taken = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        harness.run("wait: 2s")


def test_steps_set_clocks_and_send_admin_requests_to_regions(harness: ScenarioHarness) -> None:
    harness.answers = lambda region, method: (
        (200, b'{"limit": 1, "more": 2}') if method == "GET" else (204, b"")
    )
    result = harness.run("""
        begin: billing
        skew: {region: us-east, by: -250ms}
        admin: [{region: us-east, method: POST, path: /a, body: 1}, {region: us-west, method: PUT, path: /b}]
        wait_until: {region: us-west, get: /c, is: {limit: 1}}
    """)
    assert result.failure is None
    assert harness.runtime.requests == ["skew -250 us-east"]
    (first_at, first), (second_at, second), (_, third) = harness.requests
    assert (first, second, third) == ("us-east POST /a 1", "us-west PUT /b None", "us-west GET /c None")
    assert first_at == second_at
    found = [(fact.op, fact.region, fact.detail) for fact in facts(harness) if fact.op in ("skew", "note")]
    assert found == [
        ("skew", "us-east", "clock -250 ms"),
        ("note", "us-east", "POST /a"),
        ("note", "us-west", "PUT /b"),
    ]


def test_a_wait_compares_only_the_named_fields_of_objects_at_any_depth(harness: ScenarioHarness) -> None:
    harness.answers = lambda region, method: (
        200,
        b'{"replication": {"us-west": {"replicationBacklog": 0, "connected": true}}, "msgInCounter": 7}',
    )
    stats = "{replication: {us-west: {replicationBacklog: %s}}}"
    result = harness.run(f"wait_until: {{region: us-east, get: /stats, is: {stats % 0}}}")
    assert result.failure is None
    for other in (stats % 1, "{replication: {eu-central: {replicationBacklog: 0}}}", "{replication: 7}"):
        waiting = harness.run(f"wait_until: {{region: us-east, get: /stats, is: {other}, within: 1s}}")
        assert ": us-east returned 200 {" in failure_of(waiting)


def test_an_answer_that_is_not_welcome_fails_its_step(harness: ScenarioHarness) -> None:
    harness.answers = lambda region, method: (409, b"older than what is there")
    result = harness.run("""
        begin: billing
        admin: [{region: us-east, method: POST, path: /a, status: [204, 409]}]
        admin: [{region: us-west, method: POST, path: /a}]
    """)
    assert failure_of(result).endswith(": us-west responded to POST /a with 409 older than what is there")
    waiting = harness.run("""
        begin: fast
        wait_until: {region: us-west, get: /a, is: 1, within: 1s}
    """)
    assert failure_of(waiting).endswith(": us-west returned 409 null within 1 s")
