"""A run that grows: what each step reports. Violations are written into the logs of a run, as by a faulty region."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.model.markers import SubscriptionUpdate
from emulator.wire.entry import build_entry, with_replication
from emulator.wire.markers import encode_marker
from emulator.wire.message_metadata import read_metadata
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.live.progress import RunProgress

from ..sample_run import SampleRun, failover_drill, place
from .growing_run import GrowingSample, Stepper, names_of

EAST, WEST, EU = "us-east", "us-west", "eu-central"


@pytest.fixture
def engine() -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine()
    yield engine
    engine.close()


@pytest.fixture
def growing(tmp_path: Path) -> GrowingSample:
    return GrowingSample(tmp_path / "run", SampleRun())


def publish(growing: GrowingSample, *numbers: int, to: list[str] | None = None) -> None:
    for number in numbers:
        growing.sample.publish(EAST, number, 1 + number / 10, to=to)


def missing_of(progress: RunProgress) -> dict[tuple[str, str], int]:
    return {(link.source, link.target): link.missing for link in progress.links if link.missing}


def test_an_empty_run_has_nothing_to_report(engine: EmbeddedEngine, growing: GrowingSample) -> None:
    progress = Stepper(engine, growing.path).step()
    assert (progress.published, progress.at_s, progress.violations) == (0, 0.0, ())
    assert progress.has_converged


def test_lag_of_a_link_begins_with_the_receipt_and_ends_with_the_copy(
    engine: EmbeddedEngine, growing: GrowingSample
) -> None:
    stepper = Stepper(engine, growing.path)
    publish(growing, 0, 1, to=[WEST])
    growing.grow()
    progress = stepper.step(2)
    assert missing_of(progress) == {(EAST, EU): 2}
    assert not progress.has_converged
    assert progress.violations == ()
    growing.sample.logs[EU] += [
        with_replication(growing.sample.logs[EAST][entry], EAST, place(EAST, entry)) for entry in (0, 1)
    ]
    growing.sample.fact(9.0, "note", detail="it is quiet")
    growing.grow()
    after = stepper.step()
    assert after.has_converged
    worst = next(link for link in after.links if link.target == EU and link.source == EAST)
    assert (worst.acknowledged, worst.stored, worst.lag_s) == (2, 2, 0.0)


def test_the_window_keeps_only_what_is_not_complete(engine: EmbeddedEngine, growing: GrowingSample) -> None:
    """A run that grows for ever: after each step the same number of rows is kept, and of tables in the engine."""
    stepper = Stepper(engine, growing.path)
    sizes = []
    for number in range(0, 60, 10):
        publish(growing, *range(number, number + 10))
        growing.grow()
        progress = stepper.step(2)
        assert progress.open == 0
        assert progress.violations == ()
        sizes.append(rows_of_tables(engine))
    assert sum(link.acknowledged for link in progress.links) == 120
    assert sizes[1:] == [sizes[1]] * 5


def rows_of_tables(engine: EmbeddedEngine) -> list[int]:
    """Return the number of rows of each table that the engine keeps."""
    database = engine._database
    tables = [name for (name,) in database.execute("SHOW TABLES").fetchall()]
    return sorted(database.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in tables)


def phantom(sample: SampleRun) -> None:
    metadata = read_metadata(sample.logs[EAST][0])
    metadata.sequence_id = 77
    sample.logs[WEST].append(with_replication(build_entry(metadata, b"never sent"), EAST, place(EAST, 99)))


def stored_twice(sample: SampleRun) -> None:
    sample.logs[WEST].append(sample.logs[WEST][0])


def other_payload(sample: SampleRun) -> None:
    sample.publish(EAST, 10, 3.0)
    for region in sample.regions:
        data = sample.logs[region][-1]
        sample.logs[region][-1] = build_entry(read_metadata(data), b"another payload")


def corrupt(sample: SampleRun) -> None:
    sample.publish(EAST, 10, 3.0)
    data = sample.logs[EU][-1]
    sample.logs[EU][-1] = data[:-1] + bytes([data[-1] ^ 1])


def out_of_order(sample: SampleRun) -> None:
    for number in (10, 11):
        sample.publish(EAST, number, 3.0 + number / 100)
    sample.logs[WEST][-2:] = reversed(sample.logs[WEST][-2:])


def omitted(sample: SampleRun) -> None:
    for number in (10, 11):
        sample.publish(EAST, number, 3.0 + number / 100)
    sample.logs[WEST].pop(-2)


def lost(sample: SampleRun) -> None:
    sample.publish(EAST, 10, 3.0)
    for region in sample.regions:
        sample.logs[region].pop()


def differs(sample: SampleRun) -> None:
    sample.publish(EAST, 10, 3.0)
    data = sample.logs[EU][-1]
    metadata = read_metadata(data)
    metadata.partition_key = "other"
    sample.logs[EU][-1] = build_entry(metadata, data[-80:])


@pytest.mark.parametrize(
    ("violate", "invariant", "text"),
    [
        (phantom, "INV-3", "stored that no client published"),
        (stored_twice, "INV-2", "stored more than once"),
        (other_payload, "INV-3", "with another payload"),
        (corrupt, "INV-3", "do not match their checksum"),
        (out_of_order, "INV-4", "stored after a later one"),
        (omitted, "INV-2", "missing (us-west 1)"),
        (lost, "INV-1", "missing from the log of the region that acknowledged it"),
        (differs, "INV-6", "stored with different bytes"),
    ],
)
def test_a_violation_is_reported_in_the_step_that_reads_it(
    engine: EmbeddedEngine,
    growing: GrowingSample,
    violate: Callable[[SampleRun], None],
    invariant: str,
    text: str,
) -> None:
    """Two steps, because a receipt is used in the step after the one that reads it."""
    publish(growing, *range(6))
    stepper = Stepper(engine, growing.path)
    growing.grow()
    assert stepper.step(2).violations == ()
    violate(growing.sample)
    growing.grow()
    progress = stepper.step(2)
    assert text in names_of(progress)[invariant]
    found = next(one for one in progress.violations if one.result.invariant == invariant)
    assert found.witness["producer"] == "orders-us-east"


def test_a_violation_is_reported_once_also_when_its_messages_have_left_the_window(
    engine: EmbeddedEngine, growing: GrowingSample
) -> None:
    publish(growing, *range(6))
    phantom(growing.sample)
    stepper = Stepper(engine, growing.path)
    growing.grow()
    found = names_of(stepper.step())
    publish(growing, *range(80, 83))
    growing.grow()
    later = names_of(stepper.step(2))
    assert later["INV-3"] == found["INV-3"]
    assert later.keys() - found.keys() == {"INV-4"}, "they follow the phantom, which claims a later position"
    assert sorted(stepper.reported) == sorted(
        violation.result.name for violation in stepper.follower.progress().violations
    )


def test_a_copy_that_is_visible_before_its_origin_is_no_violation(
    engine: EmbeddedEngine, growing: GrowingSample
) -> None:
    """Each log is read at another moment."""
    stepper = Stepper(engine, growing.path)
    for number in (0, 1):
        growing.sample.publish(EAST, number, 1 + number / 10, acknowledged=False)
    growing.grow(WEST)
    assert stepper.step().violations == ()
    growing.grow()
    assert stepper.step().violations == ()


def test_the_oldest_messages_are_left_to_the_end_if_too_many_wait(
    engine: EmbeddedEngine, growing: GrowingSample
) -> None:
    """eu-central is down. Its copies arrive after their messages have left the window: they are not checked then."""
    stepper = Stepper(engine, growing.path, open_max=10)
    publish(growing, *range(20), to=[WEST])
    growing.grow()
    progress = stepper.step(2)
    assert progress.left >= 10
    assert progress.open <= 10
    assert progress.violations == ()
    assert missing_of(progress) == {(EAST, EU): 20}
    growing.sample.fact(99.0, "note", detail="still down")
    growing.grow()
    progress = stepper.step()
    assert missing_of(progress) == {(EAST, EU): 20}
    assert next(link.lag_s for link in progress.links if link.missing) == pytest.approx(98, abs=0.1)
    growing.sample.logs[EU] += [
        with_replication(data, EAST, place(EAST, entry))
        for entry, data in enumerate(growing.sample.logs[EAST])
    ]
    growing.grow()
    progress = stepper.step(2)
    assert (progress.violations, missing_of(progress)) == ((), {})


def test_a_receipt_for_a_message_that_was_left_is_ignored(
    engine: EmbeddedEngine, growing: GrowingSample
) -> None:
    """A request without a response is left to the end after 10 minutes; its late receipt is no lost message."""
    stepper = Stepper(engine, growing.path)
    message = growing.sample.ask(EAST, 0, 1.0)
    growing.sample.fact(700.0, "note", detail="the client waits")
    growing.grow()
    progress = stepper.step()
    assert (progress.open, progress.left) == (0, 1)
    growing.sample.tell(
        "orders-us-east", 701.0, "publish", "ok", message_id=f"{place(EAST, 0)}:-1", **message
    )
    growing.grow()
    assert stepper.step(2).violations == ()


@pytest.mark.parametrize(("acknowledged", "is_found"), [(4, False), (3, True)])
def test_an_update_of_a_message_that_no_consumer_acknowledged_is_reported(
    engine: EmbeddedEngine, growing: GrowingSample, acknowledged: int, is_found: bool
) -> None:
    """The update moves the subscription in us-west behind a message that it would skip."""
    stepper = Stepper(engine, growing.path)
    growing.sample.subscribe(EAST, 0.5)
    publish(growing, *range(4))
    growing.grow()
    assert stepper.step(2).open == 4  # stored everywhere, and not consumed
    for entry in range(acknowledged):
        growing.sample.acknowledge(EAST, entry, 5.0 + entry)
    update = SubscriptionUpdate("billing", ((WEST, place(WEST, 3)),))
    growing.sample.store(EAST, encode_marker(update, 1, (WEST, EU))[0])
    growing.grow()
    progress = stepper.step()
    assert progress.open == 4 - acknowledged
    assert ("INV-12" in names_of(progress)) == is_found
    if is_found:
        assert "no consumer acknowledged it" in names_of(progress)["INV-12"]
        assert progress.violations[0].witness["sequence_id"] == 3


@pytest.mark.long
def test_an_honest_failover_is_followed_without_an_alarm(engine: EmbeddedEngine, tmp_path: Path) -> None:
    """The logs of two regions are read up to an earlier moment than the others, in each step another one."""
    whole = failover_drill(4.0, 25)
    events = sorted(whole.events, key=lambda event: event[1])
    sample = SampleRun()
    growing = GrowingSample(tmp_path / "run", sample)
    stepper = Stepper(engine, growing.path)
    for step in range(1, 8):
        until_ms = sample.time_ms(step * 4.0 / 7)
        sample.events = [event for event in events if event[1] <= until_ms]
        for number, region in enumerate(sample.regions):
            lag_ms = 150.0 * ((step + number) % 3)
            entries = whole.logs[region]
            visible = [data for data in entries if read_metadata(data).publish_time <= until_ms - lag_ms]
            sample.logs[region] = entries[: max(len(visible), len(sample.logs[region]))]
        growing.grow()
        assert stepper.step().violations == ()
    sample.events, sample.logs = events, whole.logs
    growing.grow()
    progress = stepper.step(2)
    assert (progress.violations, progress.has_converged) == ((), True)
    assert progress.acknowledged == sum(event[2:4] == ("publish", "ok") for event in events)
