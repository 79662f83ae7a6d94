"""A workload: the programs that use or abuse one feature, its checks, and mutants without its safeguards.

    @WORKLOAD.plan      a function that adds acts to a plan, often enough that every few dozen seeds have some
    Act                 a plain value in the plan: an operation and its time; `perform` runs it and records its result
    @WORKLOAD.checker   the invariants of the feature, checked from outside the brokers
    @WORKLOAD.mutant    components without the safeguards that the workload tests

A hostile workload has checks for *other* clients: the guarantees for honest clients must still hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from emulator.client import Client, ClientError
from emulator.run.history_events import payload_digest
from emulator.simulation.invariant_check import Found, InvariantCheck
from tests.swarm.evidence import Evidence, OperationResult
from tests.swarm.mutant import Mutants
from tests.swarm.names import public_name

if TYPE_CHECKING:
    from emulator.simulation.host import Host
    from tests.swarm.plan import Plan
    from tests.swarm.record import Record
    from tests.swarm.world import SwarmWorld

Draw = TypeVar("Draw", bound=Callable[[Random, "Plan"], "Plan"])
Find = TypeVar("Find", bound=Callable[[Evidence], Found])


def has_publishes(evidence: Evidence) -> bool:
    return bool(evidence.published)


def has_operations(evidence: Evidence) -> bool:
    return bool(evidence.operations)


@dataclass(frozen=True, slots=True)
class Act:
    """An operation that one program performs once."""

    at_seconds: float
    region: str

    workload: ClassVar[str]
    is_awaited: ClassVar[bool] = False
    """Whether the checks wait for the outcome, because the act publishes messages that consumers have to receive."""

    @property
    def places(self) -> tuple[str, ...]:
        """The regions and clients that the act requires."""
        return (self.region,)

    def host(self, context: ActContext) -> Host | None:
        """Return the host on which the act runs; None: it cannot run."""
        return context.world.client_host(context.name, self.region)

    async def perform(self, context: ActContext) -> None:
        """Run the act. Raises ClientError when a region rejects it or does not respond."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.at_seconds:.2f} s: {public_name(self.workload)} in {self.region}"


class ActContext:
    """The environment of one act, which also records its results."""

    def __init__(self, world: SwarmWorld, record: Record, act: Act, number: int) -> None:
        self.world = world
        self.record = record
        self.act = act
        self.name = f"{act.workload}-{number}"
        self.random: Random = world.simulation.random(f"act {self.name}")
        self._did = False

    @property
    def now(self) -> float:
        return self.world.simulation.now

    def client(self) -> Client:
        """Return a client on the act's host, for the act's region."""
        return self.world.client_on(self.world.client_host(self.name, self.act.region), (self.act.region,))

    def begin(self) -> None:
        """Start the act on its host, or record `nothing` if it cannot run."""
        host = self.act.host(self)
        if host is None:
            self.note_result("nothing")
        else:
            host.start(self._run(), name=self.name)

    async def _run(self) -> None:
        began = self.now
        try:
            await self.act.perform(self)
        except ClientError as failure:
            self.note_result(
                "refused" if failure.definite and failure.code is not None else "nothing", began=began
            )
        if not self._did:
            self.note_result("nothing", began=began)

    def note_publish(
        self,
        topic: str,
        number: int,
        payload: bytes,
        outcome: Literal["asked", "ok", "failed"],
        **fields: Any,
    ) -> None:
        """Record a publish in the history, so that the common checks require its replication and delivery."""
        self.record.note(
            self.name,
            "publish",
            outcome,
            region=self.act.region,
            topic=topic,
            origin_region=self.act.region,
            producer=self.name,
            sequence_id=number,
            session=f"{self.name}#1",
            payload_digest=payload_digest(payload),
            detail=payload.decode(),
            **fields,
        )

    def note_result(
        self, outcome: Literal["accepted", "refused", "nothing"], *, began: float | None = None, **fields: Any
    ) -> OperationResult:
        """Record the result of the act."""
        self._did = True
        fields.setdefault("region", self.act.region)
        operation = OperationResult(
            self.act.workload, outcome, self.now if began is None else began, self.now, **fields
        )
        self.record.operations.append(operation)
        return operation


class Workload:
    """One feature under test. Its module registers functions and classes with `plan`, `checker` and `mutant`."""

    def __init__(self, seed_name: str, *, acts: bool = True, runs_in: str = "") -> None:
        """`seed_name`: the seed of its random sources and the prefix of its topics and programs
        (`tests.swarm.names`). `acts`: whether it adds acts; otherwise it changes the programs or the topology.
        `runs_in`: the workload whose simulated runs detect its mutants, if that is not this one."""
        self.seed_name = seed_name
        self.acts = acts
        self.checks: list[InvariantCheck[Evidence]] = []
        self.mutants = Mutants(runs_in or seed_name)
        self.mutant = self.mutants.mutant

    @property
    def name(self) -> str:
        """The public name of the workload."""
        return public_name(self.seed_name)

    def plan(self, draw: Draw) -> Draw:
        """Register the decorated function, which returns a plan with acts of this workload or its plan unchanged."""
        self.draw = draw
        return draw

    def checker(
        self,
        name: str,
        invariant: str,
        *,
        only_healed: bool = False,
        applies: Callable[[Evidence], bool] = has_publishes,
    ) -> Callable[[Find], Find]:
        """Register the decorated generator, which yields the violations of an invariant in the evidence of a run."""

        def register(find: Find) -> Find:
            self.checks.append(InvariantCheck(name, invariant, find, only_healed, applies))
            return find

        return register

    def reports(self, name: str, invariant: str, problem: str, sentence: str) -> None:
        """Register a check of the results that programs of this workload report about their own responses. A result
        whose detail begins with `problem` violates the invariant."""

        def find(evidence: Evidence) -> Found:
            for operation in evidence.operations:
                if operation.workload == self.seed_name and operation.detail.startswith(problem):
                    detail = operation.detail.removeprefix(problem)
                    witness = {"region": operation.region, "topic": operation.topic}
                    yield f"{operation.topic}: {sentence}: {detail}", witness

        self.checker(name, invariant, applies=self.acted)(find)

    def acted(self, evidence: Evidence) -> bool:
        """Return whether any program of this workload ran."""
        return any(operation.workload == self.seed_name for operation in evidence.operations)
