"""Evidence on programs with a transaction key: the responses that they received, and their transactions on the disks.

A task reads an inbox, processes, and writes to an outbox of its own, in transactions under one key. The checks read the
logs of topics and coordinators with the code of this file, not with the brokers' code.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emulator.simulation.durable_media import DurableLog, Medium
from emulator.simulation.evidence import scan_once
from tests.swarm.topics import TRANSACTED

Task = tuple[str, str]
"""(region, transaction key): keys fence in each region by itself."""
Txn = tuple[int, int]
"""(coordinator, number)."""

COORDINATOR_LOG = "internal://pulsar/system/__transaction_log_"
KEY_LOG = "internal://pulsar/system/__transaction_key_"
COMMIT_MARKER, ABORT_MARKER = 21, 22


def outbox_of(key: str) -> str:
    """Full name of the topic that a key's results go to."""
    return f"{TRANSACTED}{key}"


# Records of the programs.


@dataclass(slots=True)
class Grant:
    """A program received the epoch of its connection under a key."""

    who: str
    """Name of the program."""
    process: int
    """A number that is unique to the client."""
    task: Task
    epoch: int
    asked: float
    """When it requested the connection."""
    reported: float
    """When it received the response."""


@dataclass(slots=True)
class Work:
    """One transaction under a key, as its program knows it."""

    who: str
    task: Task
    epoch: int
    txn: Txn
    sent: dict[str, float] = field(default_factory=dict)
    """Text of a result -> when it was sent."""
    stored: set[str] = field(default_factory=set)
    """Results with a receipt."""
    end_asked: float | None = None
    reported: str = ""
    """`committed` or `aborted`; empty: unknown."""


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


# What is stored.


class Result(NamedTuple):
    """A message of an outbox."""

    text: str
    """`position of its message in the inbox|transaction|who`."""
    txn: Txn | None
    place: str
    """Position in the outbox, `ledger:entry`."""

    @property
    def source(self) -> str:
        """Position of the message in the inbox that it is the result of."""
        return self.text.partition("|")[0]


@dataclass(slots=True)
class Outbox:
    """The content of one outbox."""

    results: list[Result] = field(default_factory=list)
    ends: dict[Txn, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The markers of each transaction in this log."""

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
    """What the disks of all regions store of tasks."""

    outboxes: dict[Task, Outbox] = field(default_factory=dict)
    journals: dict[tuple[str, int], list[list[Any]]] = field(default_factory=dict)
    """(region, coordinator) -> the decoded entries of its log."""
    epochs: dict[Task, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Granted epochs, in the order of the log."""


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
    """Tasks of which a program runs until the end."""
    inbox: str = ""
    """Full name of the topic that all tasks read."""
