"""The small runs that tampering changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from emulator.cli.seed_report import store_run
from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.region import NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.stored_keys import CursorKey, GrantKey
from emulator.run.history_events import transaction_text
from emulator.scenarios.scenario import parse_scenario
from emulator.simulation.outcome import SimulationOutcome
from emulator.simulation.scenarios.run import prepare, run_scenario
from emulator.wire.entry import with_replication
from emulator.wire.markers import encode_marker

from ..sample_run import TOPIC, SampleRun, place, put_value, store_entries

MESSAGES = 6
EAST, WEST, EU = "us-east", "us-west", "eu-central"


def small_run(*, replicated: bool = True) -> SampleRun:
    """us-east and eu-central publish in turns; billing receives and acknowledges every message in us-east."""
    run = SampleRun()
    run.fact(0.0, "phase", detail="it begins")
    run.subscribe(EAST, 0.1, replicated=replicated)
    for number in range(MESSAGES):
        run.publish(EAST, number, 1 + number)
        run.publish(EU, number, 1.5 + number)
    for entry in range(2 * MESSAGES):
        run.receive(EAST, EAST if entry % 2 == 0 else EU, entry // 2, 10 + entry, entry)
        run.acknowledge(EAST, entry, 10.5 + entry)
    return run


def two_producers() -> SampleRun:
    run = SampleRun()
    for number in range(MESSAGES):
        for producer in ("pa", "pb"):
            run.publish(EAST, number, 1 + number, producer=producer)
    return run


def two_owners() -> SampleRun:
    """A run in which pa has exclusive access to the topic in us-east, then pb."""
    run = SampleRun()
    for epoch, producer in enumerate(("pa", "pb")):
        for number in range(MESSAGES):
            run.publish(EAST, number, 1 + MESSAGES * epoch + number, producer=producer)
        run.change("connect", "ok", only=epoch, topic_epoch=epoch)
    return run


def granted(epoch: int, owner: str, first: int, /, **said: object) -> Callable[[Path], None]:
    """Add a grant to the store of us-east."""
    row = {"epoch": epoch, "owner": owner, "first_entry": first, "end_entry": None, "why": "", "at_ms": 1}
    value = json.dumps(row | said).encode()
    return lambda path: put_value(path, EAST, GrantKey.of(TOPIC, epoch).text, value)


def both_granted(path: Path) -> None:
    """Store the grants of pa and pb."""
    granted(0, "pa", 0)(path)
    granted(1, "pb", MESSAGES)(path)


def cursor_at(mark_delete: int, region: str = EAST) -> Callable[[Path], None]:
    value = json.dumps({"format": 1, "mark_delete": mark_delete, "ranges": []}).encode()
    return lambda path: put_value(path, region, CursorKey(TOPIC, "billing").text, value)


def planned() -> SampleRun:
    """Billing acknowledges all messages in us-east. us-west has acknowledged the first eight of them when the fail-over
    is planned, and delivers the last four again."""
    run = small_run()
    figures: dict[str, object] = {
        "redelivered_messages": 4,
        "skipped_messages": 0,
        "exact": True,
        "quiet": True,
    }
    state = {"source_mark_delete": str(place(EAST, 11)), "target_last": str(place(WEST, 11))}
    plan = {"begun_at_ms": run.time_ms(30), **figures, **state}
    run.fact(
        30, "failover_plan", region=EAST, other_region=WEST, topic=TOPIC, subscription="billing", plan=plan
    )
    run.subscribe(WEST, 31)
    for entry in range(8, 2 * MESSAGES):
        run.receive(WEST, EAST if entry % 2 == 0 else EU, entry // 2, 31 + entry, entry)
        run.acknowledge(WEST, entry, 31.5 + entry)
    return run


def finished_in_west(path: Path) -> None:
    cursor_at(11, WEST)(path)


def converged() -> SampleRun:
    """Billing acknowledges all messages in us-east. A snapshot there covers them, and its update reached us-west and
    eu-central. Then nothing happens for half a minute."""
    run = small_run()
    positions = ((WEST, place(WEST, 11)), (EU, place(EU, 11)))
    run.store(EAST, encode_marker(Snapshot("s", place(EAST, 11), positions), 1, (EAST,))[0])
    store_update(run)
    for region in (WEST, EU):
        run.store(region, with_replication(run.logs[EAST][13], EAST, place(EAST, 13)))
    run.fact(60, "phase", detail="nothing happened for half a minute")
    return run


def store_update(run: SampleRun) -> None:
    positions = ((WEST, place(WEST, 11)), (EU, place(EU, 11)))
    run.store(EAST, encode_marker(SubscriptionUpdate("billing", positions), 1, (WEST, EU))[0])


def replicated_cursors(**changed: int | None) -> Callable[[Path], None]:
    """Store replicated cursors that count everything. `changed`: region -> other mark-delete; None: no cursor."""

    def change(path: Path) -> None:
        for region in (EAST, WEST, EU):
            mark_delete = changed.get(region.replace("-", "_"), 11)
            if mark_delete is not None:
                head = {"format": 2, "write": 1, "generation": 0, "mark_delete": mark_delete}
                state = {"highest_acked": 11, "ahead_of_peers": region == EAST, "replicated": True}
                put_value(path, region, CursorKey(TOPIC, "billing").text, json.dumps(head | state).encode())

    return change


def killed_in_west() -> SampleRun:
    """us-west is killed before the last messages are published, so it does not store them."""
    run = small_run()
    run.fact(5.2, "kill", region=WEST)
    run.logs[WEST] = run.logs[WEST][:8]
    return run


COMMITTED, ABORTED, OPEN = (0, 1), (0, 2), (1, 0)


def transactions() -> SampleRun:
    """us-east stores a plain message, two of a committed transaction, one of an aborted one, a plain one, and one of an
    open transaction. Billing receives and acknowledges the visible messages in us-east."""
    run = SampleRun()
    run.fact(0.0, "phase", detail="it begins")
    run.subscribe(EAST, 0.1)
    run.publish(EAST, 0, 1)
    run.publish(EAST, 1, 2, transaction=COMMITTED)
    run.publish(EAST, 2, 3, transaction=COMMITTED)
    run.end(EAST, COMMITTED, 4, commit=True)
    run.publish(EAST, 3, 5, transaction=ABORTED, to=[EAST])
    run.end(EAST, ABORTED, 6, commit=False)
    run.publish(EAST, 4, 7)
    run.publish(EAST, 5, 8, transaction=OPEN, to=[EAST])
    for number, entry in enumerate((0, 1, 2)):
        run.receive(EAST, EAST, number, 10 + number, entry)
        run.acknowledge(EAST, entry, 10.5 + number)
    run.receive(EAST, EAST, 4, 13, 6)
    run.acknowledge(EAST, 6, 14)
    return run


KEY = "settlement"
FIRST, FENCED, SECOND = (0, 10), (0, 11), (0, 12)
"""Transactions under the key: two of task-1, the second of which is fenced, and one of task-2."""


def keyed() -> SampleRun:
    """In us-east task-1 settles an order and begins a transaction; task-2 takes the key and settles another order."""
    run = SampleRun()
    run.fact(0.0, "phase", detail="it begins")
    run.publish(EAST, 0, 1)
    run.publish(EAST, 1, 1.5)
    run.subscribe(EAST, 2, "settling", replicated=False)
    task_begins(run, "task-1", FIRST, 3, epoch=0)
    settles(run, FIRST, 0, 4)
    task_commits(run, "task-1", FIRST, 5)
    task_begins(run, "task-1", FENCED, 6, epoch=0)
    task_begins(run, "task-2", SECOND, 7, epoch=1)
    settles(run, SECOND, 1, 8)
    task_commits(run, "task-2", SECOND, 9)
    return run


def task_begins(run: SampleRun, task: str, transaction: tuple[int, int], at_s: float, *, epoch: int) -> None:
    said = {"region": EAST, "transaction_key": KEY}
    run.tell(task, at_s - 0.001, "begin_transaction", "asked", **said)
    told = {"transaction": transaction_text(transaction), "key_epoch": epoch}
    run.tell(task, at_s, "begin_transaction", "ok", **said, **told)


def task_commits(run: SampleRun, task: str, transaction: tuple[int, int], at_s: float) -> None:
    said = {"region": EAST, "transaction": transaction_text(transaction), "action": "commit"}
    run.tell(task, at_s, "end_transaction", "asked", **said)
    run.tell(task, at_s + 0.001, "end_transaction", "ok", **said)


def settles(run: SampleRun, transaction: tuple[int, int], entry: int, at_s: float) -> None:
    """Receive and acknowledge a message in a transaction."""
    run.receive(EAST, EAST, entry, at_s, entry, "settling")
    run.acknowledge(EAST, entry, at_s + 0.1, "settling")
    for event in run.events[-2:]:
        event[4]["transaction"] = transaction_text(transaction)


def began(transaction: tuple[int, int], epoch: int) -> list[object]:
    return ["began", transaction[1], 60_000, 1, ["", KEY, epoch]]


def decided(transaction: tuple[int, int], status: str) -> list[object]:
    return ["decided", transaction[1], status, ""]


def key_granted(epoch: int, process: str) -> list[object]:
    return ["granted", "", KEY, epoch, process, 1]


JOURNAL = [
    began(FIRST, 0),
    decided(FIRST, "COMMITTING"),
    began(FENCED, 0),
    decided(FENCED, "ABORTING"),
    began(SECOND, 1),
    decided(SECOND, "COMMITTING"),
]
KEY_JOURNAL = [["floor", -1, 4], key_granted(0, "one"), key_granted(1, "two")]


def coordinator(
    *,
    instead: Sequence[list[object]] = JOURNAL,
    keys: Sequence[list[object]] = KEY_JOURNAL,
    also: Sequence[bytes] = (),
) -> Callable[[Path], object]:
    """Write the journals of coordinator 0 in us-east."""

    def store(path: Path) -> None:
        log = path / "regions" / EAST / "log.sqlite"
        for kind, entries in (("log", instead), ("key", keys)):
            lines = [json.dumps(entry).encode() for entry in entries]
            topic = f"internal://pulsar/system/__transaction_{kind}_0"
            asyncio.run(store_entries(log, EAST, [*lines, *also], topic=topic))

    return store


EVENT_TOPIC = "persistent://pulsar/system/metadata-events"
_SCENARIO = """
name: shared-metadata
description: a few messages
topic: persistent://public/default/orders
actors:
  producers:
    - {name: maker, region: us, rate_per_second: 1, messages: 4}
steps:
  - begin: all
  - wait: 14s
  - drain: 30s
"""


class SharedMetadata:
    """A simulated run of two clusters that share metadata. It ends long after the last metadata event."""

    def write(self, run: Path) -> Path:
        store_run(_shared_metadata(), run)
        return run


@cache
def _shared_metadata() -> SimulationOutcome:
    settings = BrokerSettings(configuration_metadata_sync_event_topic=EVENT_TOPIC)
    names = {"us": "americas", "eu": "europe"}
    clusters = (
        ClusterSpec(cluster, (RegionSpec(name, cluster, settings=settings),))
        for name, cluster in names.items()
    )
    topology = Topology(
        name="two",
        path=Path("topology.yaml"),
        clusters=tuple(clusters),
        links=(LinkSpec("us", "eu", LinkShape(20.0)), LinkSpec("eu", "us", LinkShape(20.0))),
        namespaces=(NamespaceConfig("public/default", tuple(names), True),),
    )
    outcome = run_scenario(prepare(parse_scenario(_SCENARIO, topology), topology, "shared-metadata"), 1)
    assert outcome.violation is None, outcome.violation
    return outcome
