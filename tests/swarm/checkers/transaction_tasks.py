"""Evidence on programs with a transaction key: the responses that they received, and their transactions on the disks.

A task consumes an inbox and publishes to its own outbox, in transactions under one key. The code here reads the logs of
topics and coordinators independently of the broker.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emulator.simulation.durable_media import DurableLog, Medium
from emulator.simulation.stored_messages import scan_once
from tests.swarm.topics import TRANSACTED

Task = tuple[str, str]
"""(region, transaction key). Each region fences the programs of a key separately."""
Txn = tuple[int, int]
"""Transaction id: (coordinator, number within the coordinator)."""

COORDINATOR_LOG = "internal://pulsar/system/__transaction_log_"
KEY_LOG = "internal://pulsar/system/__transaction_key_"
COMMIT_MARKER, ABORT_MARKER = 21, 22


def outbox_of(key: str) -> str:
    """Return the full name of the topic to which programs of the key publish results."""
    return f"{TRANSACTED}{key}"


# Records of the programs.


@dataclass(slots=True)
class Grant:
    """The epoch that a program received when it connected under a key."""

    who: str
    """Name of the program."""
    process: int
    """Unique number of the program's client object."""
    task: Task
    epoch: int
    requested_at: float
    """Time of the request, in virtual seconds."""
    reported: float
    """Time of the response, in virtual seconds."""


@dataclass(slots=True)
class Work:
    """A transaction under a key, as far as its program knows."""

    who: str
    task: Task
    epoch: int
    txn: Txn
    sent: dict[str, float] = field(default_factory=dict)
    """Text of each result -> time of the send."""
    stored: set[str] = field(default_factory=set)
    """Texts of the results with a receipt."""
    end_asked: float | None = None
    reported: str = ""
    """Outcome that the program received: `committed` or `aborted`; empty: unknown."""


@dataclass(slots=True)
class Tasks:
    """All records of the programs with a key."""

    grants: list[Grant] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    read: dict[Task, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Results that readers of the outboxes received."""
    twice: list[tuple[Task, str]] = field(default_factory=list)
    """Results that one reader received twice."""
    processes: int = 0

    def new_process(self) -> int:
        self.processes += 1
        return self.processes


# Content of the disks.


class Result(NamedTuple):
    """A message of an outbox."""

    text: str
    """Payload: `position of the source message in the inbox|transaction|program`."""
    txn: Txn | None
    place: str
    """Position in the outbox, `ledger:entry`."""

    @property
    def source(self) -> str:
        """Position of the source message in the inbox."""
        return self.text.partition("|")[0]


@dataclass(slots=True)
class Outbox:
    """The content of one outbox."""

    results: list[Result] = field(default_factory=list)
    ends: dict[Txn, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Transaction -> types of its commit and abort markers in this log."""

    def is_committed(self, txn: Txn | None) -> bool:
        return txn is None or COMMIT_MARKER in self.ends.get(txn, ())

    @property
    def committed(self) -> list[Result]:
        return [one for one in self.results if self.is_committed(one.txn)]


def read_outbox(log: DurableLog) -> Outbox:
    found = Outbox()
    for entry_id, data in zip(log.ids, log.entries, strict=True):
        info = scan_once(data, verify=True)
        if info.marker_type in (COMMIT_MARKER, ABORT_MARKER) and info.txn is not None:
            found.ends[info.txn].append(info.marker_type)
        elif info.marker_type is None:
            text = data[info.payload_offset :].decode()
            found.results.append(Result(text, info.txn, f"{log.ledger_id}:{entry_id}"))
    return found


@dataclass(slots=True)
class StoredTasks:
    """The logs of all tasks, keys and coordinators on the disks of all regions."""

    outboxes: dict[Task, Outbox] = field(default_factory=dict)
    journals: dict[tuple[str, int], list[list[Any]]] = field(default_factory=dict)
    """(region, coordinator) -> the decoded entries of its log."""
    epochs: dict[Task, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Granted epochs of each task, in the order of the key's log."""


def stored_tasks(disks: Mapping[str, Medium]) -> StoredTasks:
    """Read the outboxes and the logs of coordinators and keys from the disks."""
    found = StoredTasks()
    for region, disk in disks.items():
        for name, log in disk.logs.items():
            if name.startswith(TRANSACTED):
                found.outboxes[region, name.removeprefix(TRANSACTED)] = read_outbox(log)
            elif name.startswith(COORDINATOR_LOG):
                number = int(name.removeprefix(COORDINATOR_LOG))
                found.journals[region, number] = list(_lines(log))
            elif name.startswith(KEY_LOG):
                for kind, *rest in _lines(log):
                    if kind == "granted":
                        found.epochs[region, rest[1]].append(rest[2])
    return found


def _lines(log: DurableLog) -> Iterator[list[Any]]:
    for data in log.entries:
        yield json.loads(data)


@dataclass(slots=True)
class TaskEvidence:
    """The records of the programs and the content of the disks, to be compared."""

    reported: Tasks = field(default_factory=Tasks)
    stored: StoredTasks = field(default_factory=StoredTasks)
    tasks: tuple[Task, ...] = ()
    """Tasks with a program that runs until the end."""
    inbox: str = ""
    """Full name of the topic that all tasks read."""
