"""Transactions of a client, and the key under which it begins them.

A transaction belongs to the region that it was begun in. A client with a transaction key begins all of its
transactions at the coordinator that the key is bound to. Each new connection to it fences the one before, so a lost
connection costs the open transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from emulator.client.connection import BrokerConnection
from emulator.client.connection_pool import ConnectionPool
from emulator.client.types import ClientError, ExpiredTransaction
from emulator.errors import ServerError
from emulator.model.transaction_names import COORDINATORS, TxnId, check_key, coordinator_of
from emulator.wire.commands.connections import PartitionMetadata, PartitionMetadataResponse
from emulator.wire.commands.spec import Command, RequestCommand
from emulator.wire.commands.transactions import (
    NO_EPOCH,
    AddPartitions,
    AddSubscriptions,
    ConnectCoordinator,
    CoordinatorConnected,
    EndTransaction,
    NewTransaction,
    NewTransactionResponse,
)

ENDED: Final = frozenset({ServerError.InvalidTxnStatus, ServerError.TransactionNotFound})
"""Errors of a request for a transaction that has ended; ExpiredTransaction is another one."""


class Transaction:
    """A transaction of `Client.new_transaction`. As a context manager it commits, or aborts when the block raises."""

    def __init__(
        self, coordinators: TransactionCoordinatorClient, id_: TxnId, address: tuple[str, int]
    ) -> None:
        self.id = id_
        self.address = address
        """Address of the region that the transaction belongs to."""
        self._coordinators = coordinators
        self._participants: dict[tuple[str, str | None], asyncio.Task[None]] = {}

    def __str__(self) -> str:
        return f"transaction {self.id.text}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.commit()
        else:
            await self.abort()

    async def commit(self) -> None:
        """Commit its messages and acknowledgements; the application must not add any during the call. The request is
        repeated when the response is lost; ClientError.definite states whether the transaction certainly was not
        committed. ExpiredTransaction when a newer client has its key."""
        await self._coordinators.end(self, commit=True)

    async def abort(self) -> None:
        """Discard its messages and acknowledgements. ClientError as `commit`."""
        await self._coordinators.end(self, commit=False)

    async def will_publish_to(self, topic: str) -> None:
        """Register the topic with the coordinator, once; after a failure again, unless the transaction has ended.
        ClientError, ExpiredTransaction. Called by `Producer.send`."""
        await self._register_once((topic, None))

    async def will_acknowledge_at(self, topic: str, subscription: str) -> None:
        """Register a subscription with the coordinator, once; called by `Consumer.acknowledge`."""
        await self._register_once((topic, subscription))

    def publishes_to(self, topic: str) -> bool:
        """Whether the topic is registered with the coordinator."""
        registration = self._participants.get((topic, None))
        return (
            registration is not None
            and registration.done()
            and not registration.cancelled()
            and registration.exception() is None
        )

    async def _register_once(self, participant: tuple[str, str | None]) -> None:
        registration = self._participants.get(participant)
        if registration is None or _may_be_repeated(registration):
            work = self._coordinators.add(self, *participant)
            registration = self._participants[participant] = asyncio.get_running_loop().create_task(work)
        await asyncio.shield(registration)


def _may_be_repeated(registration: asyncio.Task[None]) -> bool:
    """Whether a registration has failed for another reason than the end of its transaction."""
    if not registration.done():
        return False
    if registration.cancelled():
        return True
    failure = registration.exception()
    if isinstance(failure, ClientError):
        return failure.code not in ENDED and not isinstance(failure, ExpiredTransaction)
    return failure is not None


class TransactionCoordinatorClient:
    """A client's connections to the coordinators of its region, and its transaction key."""

    def __init__(self, client: ConnectionPool, key: str | None, process: str) -> None:
        """ValueError for an invalid key."""
        self._client = client
        self._key = "" if key is None else check_key(key)
        self._process = process
        self._epoch = NO_EPOCH
        self._epoch_address: tuple[str, int] | None = None
        """Address of the region that granted the epoch."""
        self._connected: dict[int, BrokerConnection] = {}
        self._connecting = asyncio.Lock()
        self._turn = 0

    @property
    def epoch(self) -> int:
        """Epoch granted to the last connection under the key; -1: none yet."""
        return self._epoch

    async def begin(self, timeout_ms: int) -> Transaction:
        """Begin a transaction. ClientError."""

        async def attempt() -> Transaction:
            number = await self._choose_coordinator()
            connection = await self._connection(number)
            command = NewTransaction(self._client.new_id(), number, timeout_ms)
            response = await connection.ask(command, NewTransactionResponse)
            txn = TxnId(response.most or 0, response.least or 0)
            return Transaction(self, txn, self._client.service_address)

        return await self._client.retry(attempt, deadline_seconds=self._deadline_seconds)

    async def take_key(self) -> None:
        """Connect under the key now instead of with the first transaction; this fences the key's current holder. Raises
        ClientError or ExpiredTransaction."""

        async def attempt() -> None:
            await self._connection(await self._choose_coordinator())

        await self._client.retry(attempt, deadline_seconds=self._deadline_seconds)

    async def add(self, transaction: Transaction, topic: str, subscription: str | None) -> None:
        """Register a topic, or a subscription of it, with the coordinator of a transaction."""

        def command(request_id: int) -> RequestCommand:
            if subscription is None:
                return AddPartitions(request_id, *transaction.id, (topic,))
            return AddSubscriptions(request_id, *transaction.id, ((topic, subscription),))

        await self._request(transaction, command)

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        await self._request(
            transaction, lambda request_id: EndTransaction(request_id, *transaction.id, commit)
        )

    async def _request(self, transaction: Transaction, command: Callable[[int], RequestCommand]) -> None:
        """Send a request to the coordinator; `command` builds it with a new request id for each attempt."""

        async def attempt() -> Command:
            if self._client.service_address != transaction.address:
                where = "{}:{}".format(*transaction.address)
                sentence = f"{transaction} belongs to the region at {where}; this client uses another one now"
                raise ClientError(sentence, definite=False, code=ServerError.TransactionNotFound)
            connection = await self._connection(transaction.id.most)
            return await connection.request(command(self._client.new_id()))

        await self._client.retry(attempt, deadline_seconds=self._deadline_seconds)

    @property
    def _deadline_seconds(self) -> float:
        return self._client.settings.operation_timeout_seconds

    # Finding a coordinator.

    async def _choose_coordinator(self) -> int:
        """Return the coordinator of the key; without a key, the next one in turn."""
        count = await self._count_coordinators()
        if self._key:
            return coordinator_of(self._key, count)
        self._turn += 1
        return self._turn % count

    async def _count_coordinators(self) -> int:
        connection = await self._client.connection_for(f"{COORDINATORS}-partition-0")
        command = PartitionMetadata(self._client.new_id(), COORDINATORS, may_create=False)
        count = (await connection.ask(command, PartitionMetadataResponse)).partitions
        if not count:
            sentence = "transactions are not enabled in this region"
            raise ClientError(sentence, definite=True, code=ServerError.NotAllowedError)
        return count

    async def _connection(self, number: int) -> BrokerConnection:
        """Return the connection to a coordinator. Connects are serial: two under one key would fence each other."""
        async with self._connecting:
            connection = await self._client.connection_for(f"{COORDINATORS}-partition-{number}")
            if self._connected.get(number) is not connection:
                await self._connect(connection, number)
            return connection

    async def _connect(self, connection: BrokerConnection, number: int) -> None:
        address = self._client.service_address
        if self._epoch_address != address:  # an epoch is valid only in the region that granted it
            self._epoch, self._epoch_address = NO_EPOCH, address
        command = ConnectCoordinator(self._client.new_id(), number)
        if self._key:
            command = replace(command, key=self._key, known_epoch=self._epoch, process=self._process)
        connected = await connection.ask(command, CoordinatorConnected)
        if connected.epoch is not None:
            self._epoch = connected.epoch
        self._connected[number] = connection
