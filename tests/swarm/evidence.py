"""What the checkers of the swarm look at: the evidence of any simulated run, and what workloads add to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from emulator.simulation.evidence import RunEvidence, StoredMessage
from spark_jobs.evidence.grants import StoredGrant
from tests.swarm.checkers.claims import Claims, Place
from tests.swarm.checkers.stored_metadata import MetadataEvidence
from tests.swarm.checkers.transaction_tasks import TaskEvidence


class OperationResult(NamedTuple):
    """What one operation of a workload did, as far as its client knows."""

    workload: str
    outcome: Literal["accepted", "refused", "nothing"]
    """nothing: it had no occasion, or no answer came."""
    began: float
    """Virtual seconds."""
    ended: float
    region: str
    topic: str = ""
    subscription: str = ""
    detail: str = ""


class Left(NamedTuple):
    """What is left of a subscription in one region."""

    messages: list[StoredMessage]
    """As its stored cursor says."""
    claim: int | None
    """How many entries its region tells admins. None: it tells nothing."""
    must_be_none: bool
    """Its consumers are here and acknowledged everything, or it must have been carried here from where they are."""


@dataclass(slots=True, kw_only=True)
class Evidence(RunEvidence):
    """Everything that the checks of a generated run look at."""

    running_former_hosts: Sequence[str]
    """Hosts of replaced regions whose programs still run."""
    waiting: frozenset[str]
    """Texts of messages whose producers still wait for an outcome."""
    left: Mapping[tuple[str, str, str], Left]
    """By (region, topic, subscription), of subscriptions that should have an empty backlog."""
    restless: Collection[tuple[str, str]]
    """(region, topic) that are still written to although no client publishes and nothing is owed."""
    operations: Sequence[OperationResult]
    """What workloads did, beyond publishing and consuming."""
    claims: Claims = field(default_factory=Claims)
    """Which clients requested exclusive access, and the responses they received."""
    grants: Mapping[Place, Sequence[StoredGrant]] = field(default_factory=dict)
    """Exclusive access as stored on the disks, by epoch."""
    metadata: MetadataEvidence | None = None
    """What clusters share. None: they share nothing."""
    tasks: TaskEvidence | None = None
    """Of programs with transaction keys. None: there are none."""
