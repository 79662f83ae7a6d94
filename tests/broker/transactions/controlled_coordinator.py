"""A transaction coordinator that tests control, and a producer that names transactions like the Java and Go clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from emulator.broker.topic.topic import Topic
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import TransactionStatus, TxnId
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.entry import build_entry
from tests.broker.connection.raw import RawClient
from tests.broker.regions import Regions

TOPIC = "persistent://public/default/orders"
T1, T2, T3 = TxnId(0, 1), TxnId(0, 2), TxnId(0, 3)


class Authority:
    """A stub of a region's coordinators with the transactions that the test opens."""

    def __init__(self) -> None:
        self.known: dict[TxnId, TransactionStatus] = {}
        self.is_away = False

    def status(self, txn: TxnId) -> TransactionStatus | None:
        if self.is_away:
            raise ProtocolError(ServerError.ServiceNotReady, "the coordinator is being loaded")
        return self.known.get(txn)

    def _check(self, txn: TxnId) -> None:
        if self.status(txn) is not TransactionStatus.OPEN:
            raise ProtocolError(ServerError.TransactionNotFound, f"transaction {txn.text} is not open")

    def check_publish(self, txn: TxnId, topic: str) -> None:
        self._check(txn)

    def check_acknowledge(self, txn: TxnId, topic: str, subscription: str) -> None:
        self._check(txn)

    def abort(self, txn: TxnId, why: str) -> None:
        self.known[txn] = TransactionStatus.ABORTING

    def close(self) -> None:
        """Do nothing: the region calls this when it stops."""

    def open(self, *txns: TxnId) -> None:
        for txn in txns:
            self.known[txn] = TransactionStatus.OPEN


def authority_of(world: Regions, name: str = "us", former: Authority | None = None) -> Authority:
    """Install a controlled coordinator, by default a new one, in a region."""
    authority = former or Authority()
    world.running[name].coordinators = authority
    return authority


def topic_of(world: Regions, name: str = "us") -> Topic:
    return world.running[name].directory.serving[TOPIC]


async def end(world: Regions, txn: TxnId, *, committed: bool, name: str = "us") -> None:
    """End a transaction as a coordinator does: set the decision, then notify the topic."""
    authority = world.running[name].coordinators
    assert isinstance(authority, Authority)
    authority.known[txn] = TransactionStatus.COMMITTING if committed else TransactionStatus.ABORTING
    async with asyncio.timeout(30):
        topic = topic_of(world, name)
        await topic.transactions.end_partition(txn, committed, -1)
    authority.known[txn] = TransactionStatus.COMMITTED if committed else TransactionStatus.ABORTED


class Transacting:
    """A producer on a raw connection that publishes messages with and without transactions."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self._sequence_id = -1

    @classmethod
    async def opened(cls, raw: RawClient, name: str = "p") -> Transacting:
        await raw.open_producer(topic="orders", name=name)
        made = cls(raw)
        made.name = name
        return made

    name = "p"

    async def send(
        self,
        payload: bytes,
        txn: TxnId | None = None,
        *,
        in_metadata: bool = True,
        in_command: bool = True,
        messages: int = 0,
    ) -> pb.BaseCommand:
        """Send one message and return the response. `messages`: mark it as a batch of that size; the payload is not
        encoded as a batch."""
        self._sequence_id += 1
        metadata = pb.MessageMetadata(
            producer_name=self.name, sequence_id=self._sequence_id, publish_time=1_000 + self._sequence_id
        )
        if messages:
            metadata.num_messages_in_batch = messages
        if txn is not None and in_metadata:
            metadata.txnid_most_bits, metadata.txnid_least_bits = txn
        self._sequence_id += max(0, messages - 1)
        return await self.send_entry(metadata, payload, txn if in_command else None)

    async def send_entry(
        self, metadata: pb.MessageMetadata, payload: bytes, named: TxnId | None
    ) -> pb.BaseCommand:
        """Send SEND with the transaction `named` in the command (None: without one), and return the response."""
        self.raw.writer.write(
            send_frame(
                1,
                metadata.sequence_id,
                data=build_entry(metadata, payload),
                txn_most=None if named is None else named.most,
                txn_least=None if named is None else named.least,
            )
        )
        return await self.raw.next()


def receipts(commands: Sequence[pb.BaseCommand]) -> list[int]:
    return [one.send_receipt.message_id.entryId for one in commands]
