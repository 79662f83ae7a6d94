"""Tasks that process in transactions, in virtual time: the effect of a transaction key, and what checkers learn of
transactions."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from emulator.config.loading import load_topology
from emulator.scenarios.scenario import find_scenario, parse_scenario
from emulator.simulation.durable_media import DurableLog
from emulator.simulation.outcome import SimulationOutcome
from emulator.simulation.run_folder import write_evidence
from emulator.simulation.scenarios.run import SimulatedScenario, prepare_scenario, run_scenario
from emulator.simulation.stored_messages import LogView
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, with_transaction
from emulator.wire.markers import encode_transaction_end
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.verify import evaluate_run

pytestmark = pytest.mark.long

TOPOLOGY = load_topology(Path(__file__).parents[2] / "topology.yaml")


@cache
def shipped_outcome() -> SimulationOutcome:
    outcome = run_scenario(prepare_scenario(find_scenario(Path("transaction-keys")), TOPOLOGY), 1)
    assert outcome.violation is None
    return outcome


def processed(subscription: str) -> dict[int, set[str]]:
    """Return, by order number, the transactions that processed it and whose commit was confirmed."""
    events = shipped_outcome().events
    committed = {
        event.transaction
        for event in events
        if (event.op, event.outcome, event.action) == ("end_transaction", "ok", "commit")
    }
    found: dict[int, set[str]] = defaultdict(set)
    for event in events:
        if event.op == "receive" and event.subscription == subscription and event.transaction in committed:
            assert event.sequence_id is not None
            assert event.transaction is not None
            found[event.sequence_id].add(event.transaction)
    return found


def test_with_a_key_every_order_is_settled_once_and_without_one_some_are_settled_twice() -> None:
    keyed, plain = processed("keyed"), processed("plain")
    assert keyed.keys() == plain.keys() == set(range(len(keyed)))
    assert {len(transactions) for transactions in keyed.values()} == {1}
    assert max(len(transactions) for transactions in plain.values()) == 2


def test_a_simulation_measures_what_was_processed_more_than_once() -> None:
    twice = sum(len(transactions) > 1 for transactions in processed("plain").values())
    figures = shipped_outcome().figures
    assert figures["plain: processed more than once (messages)"] == twice > 0
    assert figures["keyed: processed more than once (messages)"] == 0


def verdict(outcome: SimulationOutcome, run: Path) -> Evaluation:
    """Return the verdict on what the regions stored."""
    write_evidence(outcome, run)
    (run / "run.json").write_text("{}")
    (run / "topology.json").write_text(TOPOLOGY.to_json())
    evaluation = evaluate_run(EmbeddedEngine(), run)
    wrong = [one.sentence for one in evaluation.checks if one.verdict in ("invalid", "unknown")]
    assert (evaluation.verdict, wrong) == ("valid", [])
    return evaluation


def sentence(evaluation: Evaluation, check: str) -> str:
    (found,) = [one for one in evaluation.checks if one.name == check]
    assert found.verdict == "valid"
    return found.sentence


def test_the_verdict_on_the_stored_logs_is_the_same(tmp_path: Path) -> None:
    evaluation = verdict(shipped_outcome(), tmp_path / "run")
    assert sentence(evaluation, "one-task-per-key").startswith("8 transactions of transaction keys")
    assert sentence(evaluation, "key-epochs-grow").startswith("3 epochs of transaction keys")
    orders, twice = (
        len(processed("keyed")),
        shipped_outcome().figures["plain: processed more than once (messages)"],
    )
    once = sentence(evaluation, "processed-once")
    assert f"keyed: {orders:,} messages processed, each once." in once
    assert f"plain: {orders:,} messages processed, {twice:.0f} of them more than once." in once


KILLS = """
name: kills
topic: orders
actors:
  producers: [{name: shop, region: us-east, rate_per_second: 100, keyed: true}]
  tasks:
    - &task
      {name: first, region: us-east, subscription: settling, replicated: true, to: settled, acknowledge: individual,
       transaction_key: settlement, messages_per_transaction: 20, commit_after: 200ms, message_time: 2ms}
    - {<<: *task, name: second}
    - {<<: *task, name: elsewhere, region: us-west}
contract: [{subscription: settling, of: orders, on: settled}]
steps:
  - begin: first
  - begin: producers
  - wait_until: {task: first, processed: 60}
  - kill: us-east
  - start: us-east
  - wait_until: {task: first, processed_more: 50}
  - kill: {task: first}
  - begin: second
  - wait_until: {task: second, processed_more: 50}
  - kill: us-east
  - begin: elsewhere
  - wait_until: {task: elsewhere, processed: 10}
  - start: us-east
  - finish: producers
  - drain: 20s
"""


def test_across_kills_every_order_is_settled_once_in_a_region_and_what_two_regions_settled_is_counted(
    tmp_path: Path,
) -> None:
    """A task that loses its region comes back under its key: it is not fenced."""
    (namespace,) = (one for one in TOPOLOGY.namespaces if one.name == "public/default")
    outcome = run_scenario(SimulatedScenario(parse_scenario(KILLS, TOPOLOGY), TOPOLOGY, namespace), 1)
    assert outcome.violation is None
    once = sentence(verdict(outcome, tmp_path / "run"), "processed-once")
    assert re.search(r"settling: \d+ messages processed, each once, \d+ in more than one region", once), once
    assert outcome.figures["settling: processed more than once (messages)"] == 0


def longest_gap_ms(consumer: str) -> float:
    times = [
        event.at_ms for event in shipped_outcome().events if event.op == "receive" and event.actor == consumer
    ]
    return max(after - before for before, after in pairwise(times))


def test_what_a_dead_task_left_open_blocks_until_the_time_out_unless_a_newer_one_has_its_key() -> None:
    """A transaction covers 2 s of messages; the timeout is 8 s."""
    assert longest_gap_ms("books-keyed") < 4_000
    assert longest_gap_ms("books-plain") > 6_000


def entry(number: int, txn: tuple[int, int] | None = None) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
    data = build_entry(metadata, b"%d" % number)
    return data if txn is None else with_transaction(data, txn)


def end(txn: tuple[int, int], *, committed: bool) -> bytes:
    return encode_transaction_end(txn, 1, committed=committed)[0]


def readable(view: LogView) -> list[int]:
    return [one.origin.number for one in view.messages]


def test_checkers_take_for_readable_what_is_committed_in_the_order_of_the_log() -> None:
    one, two = (0, 1), (0, 2)
    log = DurableLog("persistent://public/default/t", 1)
    view = LogView("a", log.name, 1)

    def append(*entries: bytes) -> list[int]:
        for data in entries:
            log.ids.append(len(log.ids))
            log.entries.append(data)
        view.read_new_entries(log)
        return readable(view)

    assert append(entry(0), entry(1, one), entry(2), entry(3, two)) == [0]
    assert append(end(two, committed=True)) == [0]
    assert append(end(one, committed=False)) == [0, 2, 3]
    assert append(end(one, committed=True), entry(4)) == [0, 2, 3, 4]
    assert len(view.by_message_id) == 5
