"""The evidence that checkers of the swarm read: that of any simulated run, and the records of workloads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from emulator.simulation.evidence import RunEvidence
from emulator.simulation.stored_messages import StoredMessage
from spark_jobs.evidence.grants import StoredGrant
from tests.swarm.checkers.claims import Claims, Place
from tests.swarm.checkers.stored_metadata import MetadataEvidence
from tests.swarm.checkers.transaction_tasks import TaskEvidence


class OperationResult(NamedTuple):
    """The outcome of one operation of a workload, as far as its client knows."""

    workload: str
    outcome: Literal["accepted", "refused", "nothing"]
    """nothing: the operation was not possible, or no response arrived."""
    began: float
    """Time of the request, in virtual seconds."""
    ended: float
    region: str
    topic: str = ""
    subscription: str = ""
    detail: str = ""


class Left(NamedTuple):
    """The backlog of a subscription in one region."""

    messages: list[StoredMessage]
    """Messages that the stored cursor has not acknowledged."""
    claim: int | None
    """Backlog in entries that the region reports to administrators; None: it reports none."""
    must_be_none: bool
    """Whether the backlog must be empty: the consumers acknowledged everything, in this region or in one that
    replicates the position to it."""


@dataclass(slots=True, kw_only=True)
class Evidence(RunEvidence):
    """All evidence of a generated run, for its checks."""

    running_former_hosts: Sequence[str]
    """Hosts of replaced regions whose programs still run."""
    waiting: frozenset[str]
    """Texts of messages for which a producer has no outcome yet."""
    left: Mapping[tuple[str, str, str], Left]
    """Backlogs of the checked subscriptions: (region, topic, subscription) -> backlog."""
    restless: Collection[tuple[str, str]]
    """(region, topic) of logs that still grow although no client publishes and no message is outstanding."""
    operations: Sequence[OperationResult]
    """Outcomes of the workloads' operations other than publishing and consuming."""
    claims: Claims = field(default_factory=Claims)
    """Requests of clients for exclusive access, and their responses."""
    grants: Mapping[Place, Sequence[StoredGrant]] = field(default_factory=dict)
    """Grants of exclusive access as stored on the disks, by region and topic, in the order of epochs."""
    metadata: MetadataEvidence | None = None
    """Metadata that the clusters share; None: they share none."""
    tasks: TaskEvidence | None = None
    """Evidence on programs with transaction keys; None: the run has none."""
