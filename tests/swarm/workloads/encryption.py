"""Programs that encrypt what they publish, singly, in batches and in chunks, and readers in two regions: a consumer
with the key receives everything unchanged; one without it can read nothing and leaves it to others.

Each program has a topic of its own. What it sent and what a region took it knows itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any, ClassVar

from emulator.client import (
    EARLIEST,
    Batching,
    Client,
    ClientError,
    Compression,
    Consumer,
    Decryption,
    Encryption,
    InitialPosition,
    OnUnreadable,
    Producer,
)
from emulator.simulation.region import Overrides
from tests.swarm.plan import Plan, with_settings
from tests.swarm.topics import TRANSACTED
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.own_topic import OwnTopic

NAME = "encrypt"
WORKLOAD = Workload(NAME)
SUBSCRIPTION = "insiders"
MESSAGE_BYTES_MAX = 4_000
"""Largest entry of every region, in bytes; longer messages are chunked."""
SECRET = b"nobody else's business/"
"""Text that every payload repeats; a payload without encryption contains it."""
STEP_SECONDS = 3.0
CONVERGENCE_SECONDS = 90.0
"""Deadline for convergence after healing, in virtual seconds."""
LOST, OPEN = "lost: ", "open: "


@cache
def keys(name: str) -> tuple[bytes, bytes]:
    """Return (public, private) PEM keys, generated once per process: their bytes do not influence a run."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    encoding = serialization.Encoding.PEM
    return (
        key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo),
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def opening(*names: str, otherwise: OnUnreadable = OnUnreadable.FAIL) -> Decryption:
    """Return a decryption with the private keys of these names."""
    return Decryption({name: keys(name)[1] for name in names}, otherwise)


@dataclass(frozen=True, slots=True)
class EncryptionProgram(OwnTopic):
    """A program that publishes in `region`, and reads the topic in `region` and in `reading`."""

    sizes: tuple[int, ...]
    """Approximate size of each message in bytes; three producers send the messages in turn."""
    compression: Compression
    readers: tuple[str, ...]
    """Names of the key holders; every message is encrypted for all of them."""
    pause_seconds: float
    """Pause between two messages."""
    faults_end_seconds: float
    """Time at which the faults end."""

    workload: ClassVar[str] = NAME

    def topic(self, context: ActContext) -> str:
        """Only this workload checks its topic: the common checks do not decrypt."""
        return f"{TRANSACTED}{context.name}"

    def payload(self, context: ActContext, number: int) -> bytes:
        """Return the payload of a message, unique to its number."""
        return f"{context.name}/{number}/".encode() + SECRET * (1 + self.sizes[number] // len(SECRET))

    async def perform(self, context: ActContext) -> None:
        client = self.client_for(self.reading, context, "outsider")
        writer = context.client()
        try:
            outsider = asyncio.ensure_future(self._look_on(client, context))
            taken = await self._publish(writer, context)
            await asyncio.sleep(max(0.0, self.faults_end_seconds - context.now))
            outsider.cancel()
            seen = (await asyncio.gather(outsider, return_exceptions=True))[0]
            if isinstance(seen, Exception):
                raise seen
            await client.close()
            reported = await self._checked(context, taken, seen if isinstance(seen, str) else "")
            detail = reported or f"{len(taken)} messages for {len(self.readers)}"
            context.note_result(
                "refused" if reported else "accepted", topic=self.topic(context), detail=detail
            )
        finally:
            await writer.close()
            await client.close()

    async def _look_on(self, client: Client, context: ActContext) -> str:
        """Consume the same subscription without a key. The consumer must receive no message, and must not withhold any
        from other consumers. Return the violation if it receives one."""
        consumer = await client.subscribe(
            self.topic(context), SUBSCRIPTION, initial_position=InitialPosition.EARLIEST
        )
        message = await consumer.receive()
        return f"{OPEN}a consumer without a key received {len(message.payload)} bytes"

    async def _publish(self, client: Client, context: ActContext) -> set[bytes]:
        """Publish all messages. Return the payloads with a receipt."""
        taken: set[bytes] = set()
        producers = [await self._producer(client, context, which) for which in range(3)]
        for number in range(len(self.sizes)):
            payload = self.payload(context, number)
            try:
                await producers[number % 3].send(payload)
                taken.add(payload)
            except ClientError:
                pass
            await asyncio.sleep(self.pause_seconds)
        return taken

    async def _producer(self, client: Client, context: ActContext, which: int) -> Producer:
        """Open a producer: number 0 sends batches, the others send large messages in chunks."""
        return await client.producer(
            self.topic(context),
            name=f"{context.name}-{which}",
            compression=self.compression,
            batching=Batching(3, delay_ms_max=20.0) if which == 0 else None,
            chunking=which > 0,
            encryption=Encryption({reader: keys(reader)[0] for reader in self.readers}),
        )

    # After the faults.

    async def _checked(self, context: ActContext, taken: set[bytes], seen: str) -> str:
        if seen:
            return seen
        client = self.client_for(self.reading, context, "insider")
        try:
            insider = await client.subscribe(
                self.topic(context),
                SUBSCRIPTION,
                initial_position=InitialPosition.EARLIEST,
                decryption=opening(self.readers[0]),
            )
            missing = taken - await self._everything(insider, taken)
        finally:
            await client.close()
        if missing:
            count = f"{len(missing)} of {len(taken)} messages"
            return f"{LOST}{count} were not delivered to {SUBSCRIPTION}, after a consumer without a key"
        for region in dict.fromkeys(self.places):
            reported = await self._look(context, region, taken)
            if reported:
                return reported
        return ""

    async def _look(self, context: ActContext, region: str, taken: set[bytes]) -> str:
        """Read the topic in a region with the last reader's key and without a key. Return the violation; empty:
        none."""
        client = self.client_for(region, context, f"look-{region}")
        try:
            reader = await client.reader(self.topic(context), EARLIEST, decryption=opening(self.readers[-1]))
            missing = taken - await self._everything(reader, taken)
            if missing:
                return f"{LOST}{len(missing)} of {len(taken)} messages cannot be read in {region}"
            without_key = opening(otherwise=OnUnreadable.CONSUME)
            stranger = await client.reader(self.topic(context), EARLIEST, decryption=without_key)
            for payload in await self._everything(stranger, set()):
                if SECRET in payload:
                    return f"{OPEN}{region} has a message that is readable without a key"
        finally:
            await client.close()
        return ""

    async def _everything(self, consumer: Any, wanted: set[bytes]) -> set[bytes]:
        """Receive until no wanted payload is missing and no more arrive, or until the deadline. Return all payloads."""
        arrived: set[bytes] = set()
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS if wanted <= arrived else CONVERGENCE_SECONDS):
                    message = await consumer.receive()
            except TimeoutError:
                return arrived
            arrived.add(message.payload)
            if isinstance(consumer, Consumer):
                await consumer.acknowledge(message)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs in every region, most of which read in another one, too."""
    seconds = plan.break_seconds

    def program() -> EncryptionProgram:
        sizes = tuple(random.choice((10, 200, 9_000)) for _ in range(random.randint(6, 24)))
        return EncryptionProgram(
            round(random.uniform(0.2, seconds * 0.4), 3),
            random.choice(plan.regions),
            random.choice(plan.regions),
            sizes,
            random.choice((Compression.NONE, Compression.ZLIB)),
            random.choice((("ours",), ("ours", "theirs"))),
            round(seconds / len(sizes) * random.uniform(0.1, 0.8), 4),
            seconds + 1.0,
        )

    topology = with_settings(
        plan.topology,
        max_message_bytes=MESSAGE_BYTES_MAX,
        max_unacked_messages_per_consumer=50_000,
    )
    acts = (*plan.acts, *(program() for _ in range(random.randint(1, 3))))
    return replace(plan, topology=topology, acts=acts)


# INV-113


def _client(type_: type[Client]) -> Callable[[Overrides], Overrides]:
    return lambda overrides: replace(overrides, client=type_)


@WORKLOAD.mutant("sent-unencrypted", "INV-113", patch=_client)
class _SentUnencrypted(Client):
    """A producer that is configured to encrypt does not encrypt."""

    async def producer(self, topic: str, **named: Any) -> Producer:
        return await super().producer(topic, **{**named, "encryption": None})


@WORKLOAD.mutant("undecryptable-acknowledged", "INV-113", patch=_client)
class _UndecryptableAcknowledged(Client):
    """A consumer acknowledges messages that it cannot decrypt."""

    async def subscribe(self, topic: Any, subscription: str, **named: Any) -> Consumer:
        decryption: Decryption = named.get("decryption") or Decryption()
        named["decryption"] = replace(decryption, on_unreadable=OnUnreadable.DISCARD)
        return await super().subscribe(topic, subscription, **named)


WORKLOAD.reports("key-holders-read-everything", "INV-113", LOST, "not received with the key")
WORKLOAD.reports("nothing-readable-without-key", "INV-113", OPEN, "readable without the key")
