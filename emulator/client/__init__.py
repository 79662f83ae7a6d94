"""An asyncio client of Pulsar's protocol, for real and for simulated networks.

    async with Client("pulsar://127.0.0.1:6650") as client:
        producer = await client.producer("orders")
        await producer.send(b"hello")
        consumer = await client.subscribe("orders", "billing", initial_position=InitialPosition.EARLIEST)
        message = await consumer.receive()
        await consumer.acknowledge(message)

A topic may have partitions. `subscribe` also takes several topics, or a pattern
(`re.compile("public/default/orders-.*")`) that includes topics created later; `table_view` keeps the newest message of
each key.

Beyond released clients it supports the priority of PIP-440 (`priority=`) with every access mode, and transaction keys
(`transaction_key=` of the client, `new_transaction`). Producers and consumers reconnect with back-off to any of the
service URLs; producers resend messages without a receipt. `ClientError.definite` states whether a failed operation
certainly did not happen.
"""

from emulator.client.client import Client
from emulator.client.config import Batching, DeadLetters
from emulator.client.consumer import Consumer
from emulator.client.encryption import Decryption, Encryption, OnUnreadable
from emulator.client.messages import Message
from emulator.client.producer import Producer
from emulator.client.reader import Reader, TableView
from emulator.client.routing import Routing
from emulator.client.transactions import Transaction
from emulator.client.types import (
    EARLIEST,
    LATEST,
    ClientError,
    ClientSettings,
    ConsumerType,
    ExpiredTransaction,
    InitialPosition,
    MessageId,
    ProducerState,
)
from emulator.model.hashing import KeyHash
from emulator.model.values import AccessMode, Schema, SchemaType
from emulator.wire.payloads import Compression
