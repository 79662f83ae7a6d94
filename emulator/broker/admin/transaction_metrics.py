"""Figures of transactions and transaction keys for Prometheus, under upstream's names and those of the proposal."""

from __future__ import annotations

from collections.abc import Callable

from emulator.broker.admin.exposition import MetricFamily
from emulator.broker.region import Region
from emulator.broker.transactions.coordinator import RunningCoordinator
from emulator.model.transaction_names import full_text

_OF_COORDINATORS: tuple[tuple[str, str, str, Callable[[RunningCoordinator], int]], ...] = (
    ("pulsar_txn_active_count", "gauge", "Open transactions.", lambda life: len(life.core.live)),
    (
        "pulsar_txn_created_total",
        "counter",
        "Transactions created.",
        lambda life: life.figures.created,
    ),
    (
        "pulsar_txn_committed_total",
        "counter",
        "Transactions committed.",
        lambda life: life.figures.committed,
    ),
    (
        "pulsar_txn_aborted_total",
        "counter",
        "Transactions aborted.",
        lambda life: life.figures.aborted,
    ),
    (
        "pulsar_txn_timeout_total",
        "counter",
        "Transactions aborted by time-out.",
        lambda life: life.figures.timed_out,
    ),
)


Families = Callable[[str, str, str], MetricFamily]
"""The family of a name, a kind and a help text."""


def add_transactions(family: Families, region: Region) -> None:
    """Nothing where transactions are not enabled."""
    lives, here = region.coordinators.lives, {"cluster": region.config.region}
    if not lives:
        return
    for name, kind, help_, figure in _OF_COORDINATORS:
        for life in lives:
            family(name, kind, help_).add(figure(life), {**here, "coordinator_id": str(life.number)})
    _add_participants(family, region, here)
    _add_keys(family, region, lives, here)


def _add_participants(family: Families, region: Region, here: dict[str, str]) -> None:
    """Of topics and subscriptions that are in memory."""
    topics = region.directory.serving.values()
    pending = [one.pending_acks for topic in topics for one in topic.subscriptions.values()]
    is_open = "Open transactions of all topics."
    opened = sum(len(topic.state.buffer.open) for topic in topics)
    family("pulsar_txn_tb_active_total", "gauge", is_open).add(opened, here)
    claimed = "Entries with pending individual acknowledgements."
    entries = sum(len(one.acks) for one in pending if one is not None)
    family("geoemu_txn_pending_ack_entries", "gauge", claimed).add(entries, here)


def _add_keys(
    family: Families, region: Region, lives: list[RunningCoordinator], here: dict[str, str]
) -> None:
    states = [state for life in lives for state in life.keys.book.keys.values()]
    family("pulsar_txn_transaction_key_count", "gauge", "Transaction keys in use.").add(len(states), here)
    newest = sorted(states, key=lambda state: (-state.since_ms, state.owner, state.key))
    epoch = family("pulsar_txn_transaction_key_epoch", "gauge", "The newest epoch of a transaction key.")
    age = family(
        "pulsar_txn_transaction_key_age",
        "summary",
        "Seconds for which epochs of a transaction key were the newest.",
    )
    now_ms = region.environment.wall_clock_ms()
    for state in newest[: region.config.settings.transaction_key_labels_max]:
        labels = {**here, "transaction_key": full_text(state.owner, state.key)}
        epoch.add(state.epoch, labels)
        age.add(round(max(0, now_ms - state.created_ms) / 1_000, 3), labels, "_sum")
        age.add(state.epoch - state.first_epoch + 1, labels, "_count")
