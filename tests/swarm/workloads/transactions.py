"""Producers that publish in transactions and commit, abort or abandon them; a reader checks the topic after each
step.

Each act has a topic of its own and records all publishes to it. A reader must never receive messages of a transaction
that is open, aborted or forgotten, and must receive all messages of those that certainly committed (INV-63).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.client import EARLIEST, Client, Producer
from emulator.core.topic.state import TopicState
from emulator.core.topic.visibility import Visibility
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.topics import TRANSACTED
from tests.swarm.workload import Act, ActContext, Workload

COMMIT, ABORT, FORGET = "commit", "abort", "forget"
FORGOTTEN_SECONDS = 1.0


class _Ledger:
    """The messages that the act published, and whether readers must receive them."""

    def __init__(self) -> None:
        self.must: list[bytes] = []
        """Messages that readers must receive once no transaction is open."""
        self.never: set[bytes] = set()
        """Messages of open, aborted and forgotten transactions, which no reader may receive."""
        self.open = 0
        """Number of transactions that may be open. Messages behind them need not be readable."""

    def wrong(self, next_message: list[bytes]) -> str:
        """Return a sentence with the violation in the messages of a reader; empty: none."""
        for payload in next_message:
            if payload in self.never:
                return f"a reader received {payload!r}, whose transaction did not commit"
        missing = [payload for payload in self.must if payload not in next_message]
        if missing and not self.open:
            return f"a reader did not receive {missing[0]!r}, which was committed"
        return ""


@dataclass(frozen=True, slots=True)
class TransactionAct(Act):
    ends: tuple[str, ...]
    """How each of the successive transactions ends: COMMIT, ABORT or FORGET."""

    workload: ClassVar[str] = "transact"

    async def perform(self, context: ActContext) -> None:
        began, client, ledger = context.now, context.client(), _Ledger()
        topic = f"{TRANSACTED}{context.name}"
        try:
            producer = await client.producer(topic)
            for number, end in enumerate(self.ends):
                await self._one(client, producer, ledger, number, end)
                if wrong := ledger.wrong(await _readable(client, topic)):
                    context.note_result("accepted", began=began, detail=wrong)
                    return
            context.note_result("accepted", began=began)
        except _Seen as seen:
            context.note_result("accepted", began=began, detail=str(seen))
        finally:
            await client.close()

    async def _one(self, client: Client, producer: Producer, ledger: _Ledger, number: int, end: str) -> None:
        timeout_seconds = FORGOTTEN_SECONDS if end == FORGET else 60.0
        transaction = await client.new_transaction(timeout_seconds)
        messages = [f"{end} {number} {index}".encode() for index in range(3)]
        ledger.open += 1
        ledger.never.update(messages)
        for payload in messages:
            await producer.send(payload, transaction=transaction)
        plain = f"plain {number}".encode()
        await producer.send(plain)
        ledger.must.append(plain)
        if wrong := ledger.wrong(await _readable(client, producer.topic)):
            raise _Seen(wrong)
        if end == COMMIT:
            ledger.never.difference_update(messages)
            await transaction.commit()
            ledger.must += messages
            ledger.open -= 1
        elif end == ABORT:
            await transaction.abort()
            ledger.open -= 1


class _Seen(Exception):
    """A violation was found while a transaction was open."""


async def _readable(client: Client, topic: str) -> list[bytes]:
    """Return everything that a new reader receives."""
    reader = await client.reader(topic, EARLIEST)
    found = []
    while await reader.has_message():
        found.append((await reader.receive()).payload)
    await reader.close()
    return found


WORKLOAD = Workload(TransactionAct.workload, runs_in="swarm")


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.12:
        return plan
    acts = []
    for _ in range(random.randint(1, 2)):
        region = random.choice(plan.producers).region
        at = round(random.uniform(0.5, plan.break_seconds * 0.8), 3)
        ends = tuple(random.choice((COMMIT, COMMIT, ABORT, FORGET)) for _ in range(random.randint(2, 5)))
        acts.append(TransactionAct(at, region, ends))
    return replace(plan, acts=(*plan.acts, *acts))


@WORKLOAD.checker("only-committed-readable", "INV-63")
def committed_and_nothing_else(evidence: Evidence) -> Found:
    """Readers receive all committed messages and nothing else."""
    for operation in evidence.operations:
        if operation.workload == TransactionAct.workload and operation.detail:
            yield f"in {operation.region}, {operation.detail}", {"region": operation.region}


@WORKLOAD.mutant("open-transaction-readable", "INV-63", patch=part("topic_state"))
class _OpenTransactionReadable(TopicState):
    """Messages of open transactions are readable."""

    @property
    def readable_end(self) -> int:
        return self.stored_end


class _HidesNothing(Visibility):
    def hide_aborted(self, first: int, last: int, marker_entry_id: int) -> None:
        pass


@WORKLOAD.mutant("aborted-transaction-readable", "INV-63", patch=part("topic_state"))
class _AbortedTransactionReadable(TopicState):
    """Messages of aborted transactions are not hidden."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.visibility = _HidesNothing()
