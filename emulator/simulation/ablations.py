"""Takes one safeguard of the real code away and shows that the swarm notices.

An ablation replaces a method of the code that ships with its careless version, for as long as a `with` lasts. The
code itself has no switches. A swarm that finds nothing is only worth something if it would have found this.

To add one: the careless version and an `Ablation` in ABLATIONS. `geoemu simulate --without NAME` runs it by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from emulator.broker import replicator, subscription_sync
from emulator.broker.subscription import Subscription
from emulator.broker.tail import StoredEntry
from emulator.broker.topic import PendingPublish, Topic
from emulator.core.deduplication import ProducerDeduplication
from emulator.core.dispatch import Dispatcher, ReadEntry
from emulator.core.replication import Forwarding, ReplicationProgress, forwarding
from emulator.core.snapshots import SnapshotController
from emulator.core.subscription_updates import Applied
from emulator.simulation.medium import DurableLog, Medium, Write
from emulator.simulation.store import SimulatedLog

Replacement = tuple[Any, str, Any]
"""(owner, name, what stands there instead)."""


@dataclass(frozen=True, slots=True)
class Ablation:
    name: str
    safeguard: str
    """What is missing, as a sentence."""
    invariants: tuple[str, ...]
    """What its loss violates; the first is the one it is there for."""
    replacements: Callable[[], list[Replacement]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Without the safeguard."""
        with ExitStack() as undo:
            for owner, name, careless in self.replacements():
                undo.callback(setattr, owner, name, vars(owner)[name])
                setattr(owner, name, careless)
            yield


class _Mute:
    """A publisher that was told already."""

    source_region: str | None = None
    producer_name = "mute"

    def stored(self, outcomes: object) -> None:
        pass


_flush = Topic.flush


def _acknowledge_at_once(topic: Topic) -> None:
    batch = list(topic._batch)
    told: dict[Any, list[tuple[PendingPublish, int]]] = {}
    for publish in batch:
        if publish.send is not None:
            told.setdefault(publish.publisher, []).append((publish, -1))
    _flush(topic)
    for publisher, outcomes in told.items():
        for publish, _ in outcomes:
            publish.publisher = _Mute()
        publisher.stored(outcomes)


def _acknowledge_duplicates_at_once(topic: Topic) -> None:
    batch, topic._batch = topic._batch, []
    topic._acknowledge([publish for publish in batch if publish.duplicate], [])
    topic._batch = [publish for publish in batch if not publish.duplicate]
    _flush(topic)


def _show_at_once(topic: Topic) -> None:
    """Visible before durable, under the ids it will probably have."""
    fresh = [publish for publish in topic._batch if not publish.duplicate]
    first = topic.end_entry_id
    _flush(topic)
    if fresh and not topic.closed:
        entries = [
            StoredEntry(first + index, publish.data, publish.info) for index, publish in enumerate(fresh)
        ]
        topic.tail.extend(entries)
        topic.end_entry_id = first + len(entries)
        topic.pump()


def _stored_and_shown_before(topic: Topic, batch: list[PendingPublish], done: asyncio.Future[int]) -> None:
    topic._issued -= 1
    failure = done.exception()
    if topic.closed:
        return
    if failure is not None:
        topic.failed(failure)
        return
    first = done.result()
    fresh = [publish for publish in batch if not publish.duplicate]
    entries = [StoredEntry(first + index, publish.data, publish.info) for index, publish in enumerate(fresh)]
    for entry in entries:
        topic._apply(entry)
    topic.end_entry_id = max(topic.end_entry_id, first + len(fresh))
    topic._acknowledge(batch, entries)
    topic._notify(entries)


_load = vars(Topic)["load"].__func__


async def _load_without_producers(cls: type[Topic], *args: Any, **kwargs: Any) -> Topic:
    topic: Topic = await _load(cls, *args, **kwargs)
    topic.deduplication = ProducerDeduplication()
    return topic


_checkpoint = Topic._checkpoint


def _checkpoint_what_was_admitted(topic: Topic) -> None:
    durable, topic.watermarks = topic.watermarks, topic.admitted_watermarks
    try:
        _checkpoint(topic)
    finally:
        topic.watermarks = durable


async def _settled(topic: Topic) -> None:
    """As it is, but for `issued_so_far`, which is taken away."""
    if topic._issued and topic._last_issued is not None:
        await asyncio.wait([topic._last_issued])
    for kept in (*topic.subscriptions.values(), *topic.replicators.values()):
        await kept.settled()  # type: ignore[attr-defined]


def _last_admitted(deduplication: ProducerDeduplication, name: str) -> int:
    progress = deduplication._progress.get(name)
    return -1 if progress is None else progress.pushed


def _is_new(topic: Topic, region: str, position: Any) -> bool:
    topic.admitted_watermarks.advance(region, position)
    return True


async def _at_once(*_: Any) -> None:
    pass


def _forward_everything(
    remote: str, replicated_from: str | None, replicate_to: tuple[str, ...], marker_type: int | None
) -> Forwarding:
    return forwarding(remote, None, replicate_to, marker_type)


def _go_on_from_next(progress: ReplicationProgress) -> None:
    progress._in_flight.clear()
    progress._bytes_in_flight = 0


def _trust(log: DurableLog, *, trusts_torn_tail: bool) -> None:
    torn, log.torn = log.torn, []
    if torn:
        log.store(log.next_entry_id, torn, log.owners[-1] if log.owners else 0)


_apply = Medium.apply


def _apply_whatever_failed_before(medium: Medium, group: Sequence[Write], owner: int) -> list[Any]:
    """Each write by itself, as if nothing before it had failed."""
    outcomes = []
    for write in group:
        if isinstance(write.lane, SimulatedLog):
            write.lane.broken = None
        outcomes += _apply(medium, [write], owner)
    return outcomes


def _fails_alone(log: SimulatedLog, error: Any) -> None:
    pass


def _assign_overtaken(dispatcher: Dispatcher, from_entry_id: int, entries: list[ReadEntry]) -> list[Any]:
    if dispatcher.type.name == "SHARED":
        return dispatcher._assign_shared(entries)
    return dispatcher._assign_active(entries)


def _pass_overtaken(dispatcher: Dispatcher, from_entry_id: int, entry_id: int) -> None:
    if entry_id > dispatcher.read_entry_id:
        dispatcher.cursor.ack_range(dispatcher.read_entry_id, entry_id - 1)
        dispatcher.read_entry_id = entry_id


def _go_where_told(cursor: Any, own_position_entry: int, last_entry_id: int, unseen: Any) -> Applied:
    if own_position_entry > last_entry_id:
        return Applied.REFUSED
    cursor.seek(own_position_entry + 1)
    return Applied.MOVED


def _methods(*replacements: Replacement) -> Callable[[], list[Replacement]]:
    return lambda: list(replacements)


ABLATIONS = (
    Ablation(
        "receipt-before-durable",
        "A receipt is sent when a publish is issued, not when it is durable.",
        ("INV-1",),
        _methods((Topic, "flush", _acknowledge_at_once)),
    ),
    Ablation(
        "receiver-forgets-sources",
        "A region does not remember which positions of another region it has.",
        ("INV-2", "INV-4", "INV-6"),
        _methods((Topic, "_is_new_from", _is_new)),
    ),
    Ablation(
        "deduplication-not-rebuilt",
        "After a restart a region knows nothing of what producers sent before it.",
        ("INV-2",),
        _methods((Topic, "load", classmethod(_load_without_producers))),
    ),
    Ablation(
        "checkpoint-claims-undurable",
        "A checkpoint of the source positions contains what was only admitted.",
        ("INV-2", "INV-6"),
        _methods((Topic, "_checkpoint", _checkpoint_what_was_admitted)),
    ),
    Ablation(
        "loops",
        "A replicator forwards what came from another region.",
        ("INV-3", "INV-2", "INV-6", "INV-4"),
        _methods((replicator, "forwarding", _forward_everything)),
    ),
    Ablation(
        "torn-tail-trusted",
        "Recovery serves what a crash left of an append.",
        ("INV-3", "INV-15"),
        _methods((DurableLog, "recover", _trust)),
    ),
    Ablation(
        "log-not-poisoned",
        "After an append failed, those behind it are stored.",
        ("INV-4", "INV-1", "INV-2"),
        _methods((Medium, "apply", _apply_whatever_failed_before), (SimulatedLog, "failed", _fails_alone)),
    ),
    Ablation(
        "one-round-snapshots",
        "A snapshot is used after one round of answers, however many regions there are.",
        ("INV-5",),
        _methods((SnapshotController, "_rounds_needed", property(lambda controller: 1))),
    ),
    Ablation(
        "update-acknowledges-unseen",
        "An update acknowledges messages that its source never received.",
        ("INV-5",),
        _methods((subscription_sync, "never_reaches", lambda *args, **kwargs: False)),
    ),
    Ablation(
        "overtaken-read-used",
        "The dispatcher uses a read that a rewind has overtaken.",
        ("INV-5",),
        _methods((Dispatcher, "assign", _assign_overtaken), (Dispatcher, "nothing_between", _pass_overtaken)),
    ),
    Ablation(
        "resume-from-next",
        "After a lost link a replicator goes on behind what it sent, not behind what is confirmed.",
        ("INV-6", "INV-2"),
        _methods((ReplicationProgress, "reset", _go_on_from_next)),
    ),
    Ablation(
        "update-moves-backward",
        "An update puts mark-delete where it says, even if that is behind.",
        ("INV-8", "INV-5", "INV-9"),
        _methods((subscription_sync, "apply_update", _go_where_told)),
    ),
    Ablation(
        "acknowledgement-before-durable",
        "An acknowledgement is answered before the cursor is durable.",
        ("INV-9",),
        _methods((Subscription, "persisted", _at_once)),
    ),
    Ablation(
        "duplicate-acknowledged-early",
        "A duplicate is acknowledged while what it repeats is still being written.",
        ("INV-10", "INV-1", "INV-2"),
        # A producer that comes back waits for what its former life has under way, which leaves no duplicates of it.
        # That second safeguard must go too, but for what it says about numbers.
        _methods(
            (Topic, "flush", _acknowledge_duplicates_at_once),
            (Topic, "issued_so_far", _at_once),
            (Topic, "settled", _settled),
            (ProducerDeduplication, "last_sequence_id", _last_admitted),
        ),
    ),
    Ablation(
        "former-life-overlooked",
        "A producer that comes back is not told of what its former life has under way.",
        ("INV-1",),
        _methods((Topic, "issued_so_far", _at_once), (Topic, "settled", _settled)),
    ),
    Ablation(
        "visible-before-durable",
        "Consumers and replicators see an entry before it is durable.",
        ("INV-13", "INV-3", "INV-5", "INV-2", "INV-6"),
        _methods((Topic, "flush", _show_at_once), (Topic, "_stored", _stored_and_shown_before)),
    ),
    Ablation(
        "reload-does-not-wait",
        "A topic is loaded again while appends to it are still under way.",
        ("INV-2", "INV-5", "INV-8", "INV-9", "INV-4"),
        _methods((Topic, "settled", _at_once)),
    ),
)

BY_NAME = {ablation.name: ablation for ablation in ABLATIONS}
