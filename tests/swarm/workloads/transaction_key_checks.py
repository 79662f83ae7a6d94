"""Checks of transaction keys: compare the disks with the responses that programs with keys received, and when."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from emulator.simulation.invariant_check import Found, InvariantCheck
from tests.swarm.checkers.transaction_tasks import (
    ABORT_MARKER,
    COMMIT_MARKER,
    Grant,
    Outbox,
    Task,
    TaskEvidence,
    Work,
    outbox_of,
)
from tests.swarm.evidence import Evidence

COMMITTED, ABORTED = "committed", "aborted"


def _evidence(evidence: Evidence) -> TaskEvidence:
    return evidence.tasks or TaskEvidence()


def _outbox(tasks: TaskEvidence, task: Task) -> Outbox:
    return tasks.stored.outboxes.get(task) or Outbox()


# INV-55


def key_epochs_grow(evidence: Evidence) -> Found:
    """Each connect under a key is granted a higher epoch than all before it, durably before the response is sent."""
    tasks = _evidence(evidence)
    for task, epochs in sorted(tasks.stored.epochs.items()):
        for before, after in pairwise(epochs):
            if after <= before:
                yield f"epoch {after} of {_named(task)} was granted after {before}", _of(task)
    for task, grants in sorted(_grants_by_task(tasks).items()):
        yield from _told_and_not_stored(task, grants, tasks.stored.epochs.get(task, []))
        yield from _not_higher(task, grants)


def _told_and_not_stored(task: Task, grants: list[Grant], stored: list[int]) -> Found:
    for grant in grants:
        if grant.epoch not in stored:
            yield (
                f"{grant.who} received epoch {grant.epoch} of {_named(task)}, which the region did not store",
                _of(task),
            )


def _not_higher(task: Task, grants: list[Grant]) -> Found:
    """A request sent after another program received its epoch must receive a higher one."""
    owners: dict[int, Grant] = {}
    for grant in grants:
        other = owners.setdefault(grant.epoch, grant)
        if other.process != grant.process:
            yield (
                f"{other.who} and {grant.who} both received epoch {grant.epoch} of {_named(task)}",
                _of(task),
            )
        before = max((one.epoch for one in grants if one.reported < grant.requested_at), default=-1)
        if grant.epoch <= before:
            yield f"{grant.who} received epoch {grant.epoch} of {_named(task)} after {before} was", _of(task)


def _grants_by_task(tasks: TaskEvidence) -> dict[Task, list[Grant]]:
    found: dict[Task, list[Grant]] = defaultdict(list)
    for grant in sorted(tasks.reported.grants, key=lambda one: one.reported):
        found[grant.task].append(grant)
    return found


# INV-57


def one_open_transaction(evidence: Evidence) -> Found:
    """At every point of a coordinator's log at most one transaction of a key is undecided."""
    for (region, number), lines in sorted(_evidence(evidence).stored.journals.items()):
        open_ones: dict[str, int] = {}
        keys: dict[int, str] = {}
        for what, *rest in lines:
            if what == "began" and rest[3] is not None:
                least, key = rest[0], rest[3][1]
                other = open_ones.setdefault(key, least)
                keys[least] = key
                if other != least:
                    yield (
                        f"key {key} in {region} has transactions ({number},{other}) and ({number},{least}) open",
                        _of((region, key)),
                    )
            elif what == "decided" and open_ones.get(keys.get(rest[0], "")) == rest[0]:
                del open_ones[keys[rest[0]]]


# INV-74


def fenced_is_never_seen(evidence: Evidence) -> Found:
    """A publish or commit under an older epoch has no effect if it is sent after a program received a newer epoch."""
    tasks = _evidence(evidence)
    for task, grants in sorted(_grants_by_task(tasks).items()):
        outbox = _outbox(tasks, task)
        for work in tasks.reported.works:
            fence = _fence_of(work, grants) if work.task == task else None
            late = "" if fence is None else _late(work, fence)
            if fence is None or not late:
                continue
            if outbox.is_committed(work.txn) or tasks.reported.read[task] & work.sent.keys():
                yield (
                    f"{work.who} had epoch {work.epoch} of {_named(task)}, {fence.who} received {fence.epoch}, and "
                    f"{late} still counts",
                    {**_of(task), "transaction": str(work.txn)},
                )


def _fence_of(work: Work, grants: list[Grant]) -> Grant | None:
    """Return the first grant that fenced the transaction."""
    return next((one for one in grants if one.epoch > work.epoch), None)


def _late(work: Work, fence: Grant) -> str:
    """Return a phrase with a request of the transaction that was sent after the fence; empty: there is none."""
    for text, sent in work.sent.items():
        if sent > fence.reported:
            return f"{text!r}, sent {sent - fence.reported:.3f} s later,"
    if work.end_asked is not None and work.end_asked > fence.reported and work.sent:
        return f"{next(iter(work.sent))!r}, whose commit it requested {work.end_asked - fence.reported:.3f} s later,"
    return ""


# INV-75


def processed_at_most_once(evidence: Evidence) -> Found:
    """No message of an inbox has two committed results. Without deduplication a client's own resend does not count."""
    tasks = _evidence(evidence)
    for task, outbox in sorted(tasks.stored.outboxes.items()):
        committed = outbox.committed
        if not evidence.replication_rules.deduplicates(outbox_of(task[1])):
            committed = list({one.text: one for one in committed}.values())
        for source, count in Counter(one.source for one in committed).items():
            if count > 1:
                places = " and ".join(one.place for one in committed if one.source == source)
                yield (
                    f"{source} of the inbox was processed {count} times under {_named(task)}: see {places}",
                    {**_of(task), "message": source},
                )
    for task, text in tasks.reported.twice:
        if evidence.replication_rules.deduplicates(outbox_of(task[1])):
            yield f"a reader of what {_named(task)} made received {text!r} twice", _of(task)


def all_processed(evidence: Evidence) -> Found:
    """After healing every message of an inbox has a committed result."""
    tasks = _evidence(evidence)
    for region, key in tasks.tasks:
        done = {one.source for one in _outbox(tasks, (region, key)).committed}
        for one in evidence.log(region, tasks.inbox).messages:
            if one.message_id not in done:
                yield (
                    f"{one.message_id} of the inbox was never processed under {_named((region, key))}",
                    {**_of((region, key)), "message": str(one.origin)},
                )


# INV-58, INV-59


def outcomes_as_reported(evidence: Evidence) -> Found:
    """A transaction that was reported committed is committed in the log of its outbox, and an aborted one is not."""
    tasks = _evidence(evidence)
    for work in tasks.reported.works:
        outbox = _outbox(tasks, work.task)
        texts = {one.text for one in outbox.results if one.txn == work.txn}
        ends = outbox.ends.get(work.txn, [])
        if work.reported == COMMITTED and work.stored and (COMMIT_MARKER not in ends or work.stored - texts):
            yield (
                f"{work.who} received the response that {work.txn} committed, and its outbox does not have it",
                _of(work.task),
            )
        elif work.reported == ABORTED and COMMIT_MARKER in ends:
            yield (
                f"{work.who} received the response that {work.txn} was aborted, and its outbox has it",
                _of(work.task),
            )
    for task, txn in _with_two_ends(tasks):
        yield f"{txn} has two outcomes in the outbox of {_named(task)}", _of(task)


def _with_two_ends(tasks: TaskEvidence) -> Iterator[tuple[Task, Any]]:
    for task, outbox in sorted(tasks.stored.outboxes.items()):
        for txn, ends in outbox.ends.items():
            if {COMMIT_MARKER, ABORT_MARKER} <= set(ends):
                yield task, txn


def read_is_committed(evidence: Evidence) -> Found:
    """Readers of an outbox receive only results that are committed in its log."""
    tasks = _evidence(evidence)
    for task, texts in sorted(tasks.reported.read.items()):
        committed = {one.text for one in _outbox(tasks, task).committed}
        for text in sorted(texts - committed):
            yield (
                f"a reader of what {_named(task)} made received {text!r}, which is not committed",
                _of(task),
            )


def _named(task: Task) -> str:
    region, key = task
    return f"key {key} in {region}"


def _of(task: Task) -> dict[str, str]:
    region, key = task
    return {"region": region, "key": key}


def _has_tasks(evidence: Evidence) -> bool:
    return evidence.tasks is not None


CHECKS = (
    InvariantCheck("key-epochs-grow", "INV-55", key_epochs_grow, applies=_has_tasks),
    InvariantCheck("one-open-transaction", "INV-57", one_open_transaction, applies=_has_tasks),
    InvariantCheck("fenced-work-never-counts", "INV-74", fenced_is_never_seen, applies=_has_tasks),
    InvariantCheck("processed-at-most-once", "INV-75", processed_at_most_once, applies=_has_tasks),
    InvariantCheck("outcomes-as-reported", "INV-58", outcomes_as_reported, applies=_has_tasks),
    InvariantCheck("only-committed-read", "INV-59", read_is_committed, applies=_has_tasks),
    InvariantCheck("all-processed", "INV-75", all_processed, only_healed=True, applies=_has_tasks),
)
