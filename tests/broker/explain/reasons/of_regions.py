"""Situations of regions that run: links, replicators, topics, subscriptions, producers and transactions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import tests.broker.regions as set_up
from emulator.broker.explain.topics import explain
from emulator.broker.replication import replicator as replicator_module
from emulator.broker.replication.link import PeerLink
from emulator.broker.replication.replicator import Replicator
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import EARLIEST, Client, ConsumerType, InitialPosition
from emulator.core.flow.rate_limit import UNLIMITED, RateLimit
from emulator.core.policies.topics import EXCLUSIVE_HOME, REPLICATION_CLUSTERS
from emulator.core.transactions.names import TransactionStatus
from emulator.errors import ProtocolError, ServerError
from emulator.model.explanations import with_conflicts
from emulator.model.reasons import Cause
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import AccessMode
from tests.broker.explain.reasons.situations import Codes, of_reason, situation
from tests.broker.regions import Regions, regions, until

TOPIC = "persistent://public/default/orders"
NAMESPACE = NamespacePath("public/default")
FROM_THE_START = InitialPosition.EARLIEST
NEVER_SECONDS = 3_600.0


@contextlib.asynccontextmanager
async def linked(*names: str, **changes: Any) -> AsyncIterator[tuple[Regions, Client]]:
    """Run regions with a client of the first one."""
    async with regions(*(names or ("us", "eu")), **changes) as world, world.client("us") as us:
        yield world, us


def codes_of(world: Regions, region: str, kind: str, name: str) -> Codes:
    return lambda: explain(world.running[region], kind, name).causes


def topic_of(world: Regions, region: str = "us") -> Topic:
    return world.running[region].directory.serving[TOPIC]


def subscription_of(world: Regions, region: str = "us") -> Subscription:
    return topic_of(world, region).subscriptions["s"]


def replicator_of(world: Regions) -> Replicator:
    return topic_of(world).replicators["eu"]


async def replicated(world: Regions, us: Client) -> Any:
    """Create a producer of a topic that eu has completely."""
    producer = await us.producer(TOPIC)
    await producer.send(b"first")
    await until(lambda: replicator_of(world).backlog == 0)
    return producer


# Links.


def link_codes(world: Regions) -> Codes:
    return codes_of(world, "us", "link", "us eu")


@situation(Cause.LINK_NOT_TRIED)
async def link_not_tried() -> AsyncIterator[Codes]:
    async with linked() as (world, _):
        region = world.running["us"]
        link = PeerLink(region, region.config.peers[0])
        yield of_reason(lambda: link.why_not)
        link.start()
        yield tuple
        link.close()


@situation(Cause.LINK_REFUSED)
async def link_refused() -> AsyncIterator[Codes]:
    async with linked() as (world, _):
        await world.crash("eu")
        right, set_up.RUN_SECRET = set_up.RUN_SECRET, "another one"
        try:
            await world.start("eu")
        finally:
            set_up.RUN_SECRET = right
        yield link_codes(world)
        await world.crash("eu")
        await world.start("eu")
        yield tuple


@situation(Cause.LINK_SILENT)
async def link_silent() -> AsyncIterator[Codes]:
    async with linked(of_region={"us": {"peer_keep_alive_interval_ms": 50}}) as (world, _):
        world.cut("us", "eu", "held")
        yield link_codes(world)
        world.heal("us", "eu")
        yield tuple


@situation(Cause.LINK_UNREACHABLE)
async def link_unreachable() -> AsyncIterator[Codes]:
    async with linked() as (world, _):
        await world.crash("eu")
        yield link_codes(world)
        await world.start("eu")
        yield tuple


@situation(Cause.LINK_CUT)
async def link_cut() -> AsyncIterator[Codes]:
    async with linked() as (world, _):
        world.cut("us", "eu")
        yield link_codes(world)
        world.heal("us", "eu")
        yield tuple


@situation(Cause.LINK_LOST)
async def link_lost() -> AsyncIterator[Codes]:
    async with linked(peer_reconnect_backoff_ms=500) as (world, _):
        await world.crash("eu")
        yield link_codes(world)
        await world.start("eu")
        yield tuple


@situation(Cause.LINK_HANDSHAKE)
async def link_handshake() -> AsyncIterator[Codes]:
    async with linked() as (world, _):
        await world.crash("eu")
        accepted: list[asyncio.StreamWriter] = []
        mute = await asyncio.start_server(
            lambda _, writer: accepted.append(writer), "127.0.0.1", world.ports["eu"]
        )
        yield link_codes(world)
        mute.close()
        for writer in accepted:
            writer.close()
        await world.start("eu")
        yield tuple


@situation(Cause.READINESS_LINK)
async def readiness_link() -> AsyncIterator[Codes]:
    async with linked() as (world, _):
        await world.crash("eu")
        yield lambda: [one.code for one in world.running["us"].waiting_for({"eu"})]
        await world.start("eu")
        yield tuple


# Replicators.


def replication_codes(world: Regions) -> Codes:
    return codes_of(world, "us", "replication", "orders eu")


@situation(Cause.NOT_REPLICATED)
async def not_replicated() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await replicated(world, us)
        await world.running["us"].policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us",))
        yield replication_codes(world)
        await world.running["us"].policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us", "eu"))
        yield tuple


@situation(Cause.LINK_DOWN)
async def link_down() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await replicated(world, us)
        world.cut("us", "eu")
        yield replication_codes(world)
        world.heal("us", "eu")
        yield tuple


@situation(Cause.ENTRY_TOO_LARGE)
async def entry_too_large() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        producer = await replicated(world, us)
        link = world.running["us"].peers["eu"]
        fits, link.entry_bytes_max = link.entry_bytes_max, 100
        await producer.send(b"x" * 200)
        yield replication_codes(world)
        link.entry_bytes_max = fits
        world.cut("us", "eu")
        await until(lambda: not link.connected)
        world.heal("us", "eu")
        yield tuple


@situation(Cause.ENTRY_REFUSED)
async def entry_refused() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await replicated(world, us)
        replicator_of(world).entry_refused(ServerError.NotAllowedError, "too old")
        yield replication_codes(world)
        link = world.running["us"].peers["eu"]
        world.cut("us", "eu")
        await until(lambda: not link.connected)
        world.heal("us", "eu")
        yield tuple


class Numbers:
    """The other region's responses about schemas, which a test sets."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.problem: ProtocolError | None = None

    def there(self, version: bytes) -> bytes | None:
        return version if self.answer.done() else None

    async def learn(self, version: bytes) -> None:
        if self.problem is not None and not self.answer.done():
            raise self.problem
        await self.answer

    def forget(self) -> None:
        """Nothing was learned."""


async def held_by_a_schema(world: Regions, us: Client, problem: ProtocolError | None) -> Numbers:
    producer = await replicated(world, us)
    numbers, replicator = Numbers(), replicator_of(world)
    numbers.problem = problem
    replicator._numbers = numbers  # type: ignore[assignment]
    await producer.send(b"next")
    replicator._hold(b"\0\0\0\0\0\0\0\1") if replicator.life.why_not == "" else None
    return numbers


@situation(Cause.SCHEMA_ASKED)
async def schema_asked() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        numbers = await held_by_a_schema(world, us, None)
        yield replication_codes(world)
        numbers.answer.set_result(None)
        yield tuple


@situation(Cause.SCHEMA_REFUSED)
async def schema_refused() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        refusal = ProtocolError(ServerError.IncompatibleSchema, "it does not fit")
        numbers = await held_by_a_schema(world, us, refusal)
        yield replication_codes(world)
        numbers.answer.set_result(None)
        yield tuple


@situation(Cause.REPLICATOR_REFUSED)
async def replicator_refused() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await replicated(world, us)
        replicator_of(world).refused("no room")
        yield replication_codes(world)
        yield tuple  # the next attempt succeeds


@situation(Cause.RECEIPT_OUT_OF_TURN)
async def receipt_out_of_turn() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await replicated(world, us)
        replicator_of(world).receipts([(topic_of(world).ledger_id, 999)])
        yield replication_codes(world)
        yield tuple  # the next attempt succeeds


@contextlib.asynccontextmanager
async def eu_does_not_open() -> AsyncIterator[tuple[Regions, Callable[[], None]]]:
    """Yield a topic that eu is asked for, and a function that lets eu respond."""
    async with linked() as (world, us):
        store = world.running["eu"].store
        store.hold()  # type: ignore[attr-defined]
        await (await us.producer(TOPIC)).send(b"first")
        try:
            yield world, store.release  # type: ignore[attr-defined]
        finally:
            store.release()  # type: ignore[attr-defined]


@situation(Cause.PRODUCER_ASKED)
async def producer_asked() -> AsyncIterator[Codes]:
    async with eu_does_not_open() as (world, let_it_open):
        yield replication_codes(world)
        let_it_open()
        yield tuple


@situation(Cause.PRODUCER_UNANSWERED)
async def producer_unanswered() -> AsyncIterator[Codes]:
    usual, replicator_module.OPEN_SECONDS = replicator_module.OPEN_SECONDS, 0.05
    try:
        async with eu_does_not_open() as (world, let_it_open):
            yield replication_codes(world)
            let_it_open()
            yield tuple
    finally:
        replicator_module.OPEN_SECONDS = usual


@situation(Cause.REPLICATOR_RESTS)
async def replicator_rests() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        producer = await replicated(world, us)
        replicator_of(world).rest()
        yield replication_codes(world)
        await producer.send(b"next")
        yield tuple


@situation(Cause.REPLICATION_RATE)
async def replication_rate() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        producer = await replicated(world, us)
        replicator_of(world).rate.set(RateLimit(1, 0, 86_400))
        for _ in range(3):
            await producer.send(b"next")
        yield replication_codes(world)
        replicator_of(world).rate.set(UNLIMITED)
        yield tuple


@situation(Cause.LINK_FULL)
async def link_full() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        producer, link = await replicated(world, us), world.running["us"].peers["eu"]
        link.pause_writing()
        await producer.send(b"next")
        yield replication_codes(world)
        link.resume_writing()
        yield tuple


@situation(Cause.READING_STORE)
async def reading_store() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        producer, topic, go_on = await replicated(world, us), topic_of(world), asyncio.Event()
        read = topic.reading.read

        async def slow(*wanted: int) -> Any:
            await go_on.wait()
            return await read(*wanted)

        topic.reading.recent = lambda *_: None  # type: ignore[method-assign]
        topic.reading.read = slow  # type: ignore[method-assign]
        await producer.send(b"next")
        yield replication_codes(world)
        go_on.set()
        yield tuple


@situation(Cause.IN_FLIGHT)
async def in_flight() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        producer = await replicated(world, us)
        world.cut("us", "eu", "held")
        await producer.send(b"next")
        yield replication_codes(world)
        world.heal("us", "eu")
        yield tuple


# Snapshots and positions.


def snapshot_codes(world: Regions) -> Codes:
    return codes_of(world, "us", "snapshot", "orders")


async def replicated_subscription(world: Regions, us: Client) -> Any:
    """A consumer of a replicated subscription, which has acknowledged nothing; and a snapshot."""
    consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
    await replicated(world, us)
    sync = topic_of(world).subscriptions.replicated
    assert sync is not None
    await until(lambda: sync.newest is not None)
    return consumer


@situation(Cause.NO_SUBSCRIPTION)
async def no_subscription() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await replicated(world, us)
        yield snapshot_codes(world)
        await us.subscribe(TOPIC, "s", replicated=True)
        yield tuple


@situation(Cause.SNAPSHOT_LINK_TO_DOWN)
async def snapshot_link_to_down() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await replicated_subscription(world, us)
        world.cut("us", "eu")
        yield snapshot_codes(world)
        world.heal("us", "eu")
        yield tuple


@situation(Cause.SNAPSHOT_LINK_FROM_DOWN)
async def snapshot_link_from_down() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await replicated_subscription(world, us)
        for outbound in (True, False):
            world.links["eu", "us"].set(outbound=outbound, state="cut")
        yield snapshot_codes(world)
        for outbound in (True, False):
            world.links["eu", "us"].set(outbound=outbound, state="up")
        yield tuple


@situation(Cause.SNAPSHOT_REPLICATOR_DOWN)
async def snapshot_replicator_down() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await replicated_subscription(world, us)
        replicator = replicator_of(world)
        replicator._retry_seconds = NEVER_SECONDS
        replicator.refused("no room")
        yield snapshot_codes(world)
        replicator._retry_due()
        yield tuple


@situation(Cause.SNAPSHOT_ONE_WAY)
async def snapshot_one_way() -> AsyncIterator[Codes]:
    """Each region has a configuration store of its own, and that of eu does not name us."""
    async with linked(clusters={"us": "a", "eu": "b"}) as (world, us):
        await replicated_subscription(world, us)
        eu = world.running["eu"]
        await eu.policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("eu",))
        yield snapshot_codes(world)
        await eu.policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us", "eu"))
        yield tuple


def subscription_codes(world: Regions, region: str = "us") -> Codes:
    return codes_of(world, region, "subscription", "orders s")


@situation(Cause.SUBSCRIPTION_NOT_REPLICATED)
async def subscription_not_replicated() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        await us.subscribe(TOPIC, "s")
        topic = topic_of(world)
        yield of_reason(lambda: topic.subscriptions.replicated.why_not(subscription_of(world)))  # type: ignore[union-attr]
        topic.subscriptions.replicate(subscription_of(world))
        yield tuple


@contextlib.asynccontextmanager
async def conflict() -> AsyncIterator[Regions]:
    """The subscription is replicated in us, and not in eu."""
    async with linked() as (world, us), world.client("eu") as eu:
        await eu.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        await replicated(world, us)
        await consumer.acknowledge(await consumer.receive(), confirmed=True)
        yield world


def compared(world: Regions, region: str) -> Codes:
    """As `geoemu explain` compares the answers of both regions."""

    def codes() -> tuple[str, ...]:
        answers = [explain(one, "subscription", "orders s") for one in world.running.values()]
        (answer,) = (one for one in with_conflicts(answers) if one.region == region)
        return answer.causes

    return codes


@situation(Cause.POSITION_NOT_APPLIED_HERE)
async def position_not_applied_here() -> AsyncIterator[Codes]:
    async with conflict() as world:
        yield compared(world, "eu")
        topic_of(world, "eu").subscriptions.replicate(subscription_of(world, "eu"))
        yield tuple


@situation(Cause.POSITION_NOT_APPLIED_THERE)
async def position_not_applied_there() -> AsyncIterator[Codes]:
    async with conflict() as world:
        ask = compared(world, "us")
        yield lambda: [code for code in ask() if code == Cause.POSITION_NOT_APPLIED_THERE.code]
        topic_of(world, "eu").subscriptions.replicate(subscription_of(world, "eu"))
        yield tuple


@situation(Cause.POSITION_FOLLOWS)
async def position_follows() -> AsyncIterator[Codes]:
    async with linked() as (world, us), world.client("eu") as eu:
        consumer = await replicated_subscription(world, us)
        await consumer.acknowledge(await consumer.receive(), confirmed=True)
        await until(lambda: "s" in topic_of(world, "eu").subscriptions)
        await until(lambda: subscription_of(world, "eu").backlog() == 0)
        yield subscription_codes(world, "eu")
        await (await eu.producer(TOPIC)).send(b"news")
        there = await eu.subscribe(TOPIC, "s", replicated=True)
        await there.acknowledge(await there.receive(), confirmed=True)
        yield tuple


# Delivery.


@situation(Cause.NO_CONSUMER)
async def no_consumer() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        consumer = await us.subscribe(TOPIC, "s")
        await consumer.close()
        await (await us.producer(TOPIC)).send(b"x")
        yield subscription_codes(world)
        await us.subscribe(TOPIC, "s")
        yield tuple


@situation(Cause.WAITS_FOR_CONSUMER)
async def waits_for_consumer() -> AsyncIterator[Codes]:
    """Key_Shared: one consumer receives nothing, another one takes every message."""
    async with linked("us") as (world, us):
        types = {"type_": ConsumerType.KEY_SHARED}
        busy = await us.subscribe(TOPIC, "s", name="busy", start_paused=True, **types)  # type: ignore[arg-type]
        idle = await us.subscribe(TOPIC, "s", name="idle", **types)  # type: ignore[arg-type]
        producer = await us.producer(TOPIC)
        for number in range(40):
            await producer.send(b"x", key=f"key-{number}")
        reason = lambda: subscription_of(world).why_not()  # noqa: E731
        await until(lambda: reason().cause is Cause.WAITS_FOR_CONSUMER)
        assert "wait for consumer 'busy' (0 permits, 0 unacknowledged)" in reason()
        yield subscription_codes(world)
        busy.resume()
        yield tuple
        await idle.close()


@situation(Cause.DISPATCH_RATE)
async def dispatch_rate() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        await us.subscribe(TOPIC, "s")
        subscription = subscription_of(world)
        subscription.handing_out.set_rate(RateLimit(1, 0, 86_400))
        producer = await us.producer(TOPIC)
        for _ in range(3):
            await producer.send(b"x")
        yield subscription_codes(world)
        subscription.handing_out.set_rate(UNLIMITED)
        yield tuple


@situation(Cause.NOT_DUE)
async def not_due() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        await us.subscribe(TOPIC, "s", type_=ConsumerType.SHARED)
        at_ms = world.surroundings.wall_clock_ms() + 3_600_000
        await (await us.producer(TOPIC)).send(b"x", deliver_at_ms=at_ms)
        yield subscription_codes(world)
        world.skews_ms["us"] = 4_000_000
        subscription_of(world).handing_out.schedule()
        yield tuple


@situation(Cause.READING_MESSAGES)
async def reading_messages() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        producer, go_on = await us.producer(TOPIC), asyncio.Event()
        topic = topic_of(world)
        read = topic.reading.read

        async def slow(*wanted: int) -> Any:
            await go_on.wait()
            return await read(*wanted)

        topic.reading.recent = lambda *_: None  # type: ignore[method-assign]
        topic.reading.read = slow  # type: ignore[method-assign]
        await us.subscribe(TOPIC, "s")
        await producer.send(b"x")
        yield subscription_codes(world)
        go_on.set()
        yield tuple


@situation(Cause.SEEKING)
async def seeking() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        consumer = await us.subscribe(TOPIC, "s")
        store = world.running["us"].store
        await (await us.producer(TOPIC)).send(b"x")
        store.hold()  # type: ignore[attr-defined]
        sought = asyncio.ensure_future(consumer.seek(EARLIEST))
        yield subscription_codes(world)
        store.release()  # type: ignore[attr-defined]
        yield tuple
        await sought


class Settling:
    """A transaction's acknowledgements while they are applied."""

    is_over = False

    def is_settling(self) -> bool:
        return not self.is_over


@situation(Cause.SETTLING)
async def settling() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        await us.subscribe(TOPIC, "s")
        await (await us.producer(TOPIC)).send(b"x")
        acks, subscription = Settling(), subscription_of(world)
        before, subscription.pending_acks = subscription.pending_acks, acks  # type: ignore[assignment]
        yield subscription_codes(world)
        acks.is_over = True
        subscription.pending_acks = before
        yield tuple


@situation(Cause.HELD_BY_TRANSACTION)
async def held_by_transaction() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        consumer = await us.subscribe(TOPIC, "s", type_=ConsumerType.SHARED)
        await (await us.producer(TOPIC)).send(b"x")
        transaction = await us.new_transaction()
        await consumer.acknowledge(await consumer.receive(), transaction=transaction)
        yield subscription_codes(world)
        await transaction.commit()
        yield tuple


# Topics.


def topic_codes(world: Regions) -> Codes:
    return codes_of(world, "us", "topic", "orders")


@situation(Cause.TOPIC_OPENING)
async def topic_opening() -> AsyncIterator[Codes]:
    async with linked("us") as (world, _):
        region, go_on = world.running["us"], asyncio.Event()
        await region.directory.acquire(TOPIC, OpenMode.CREATE)
        await region.directory.unload(TOPIC, "a test")
        open_log = region.store.open_log

        async def slow(*wanted: Any, **more: Any) -> Any:
            await go_on.wait()
            return await open_log(*wanted, **more)

        region.store.open_log = slow  # type: ignore[method-assign]
        opened = asyncio.ensure_future(region.directory.acquire(TOPIC, OpenMode.CREATE))
        yield topic_codes(world)
        go_on.set()
        yield tuple
        await opened


@situation(Cause.TOPIC_LEAVING)
async def topic_leaving() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        producer = await us.producer(TOPIC)
        region = world.running["us"]
        region.store.hold()  # type: ignore[attr-defined]
        sent = asyncio.ensure_future(producer.send(b"x"))
        await until(lambda: topic_of(world).publishing.issued > 0)
        unloaded = asyncio.ensure_future(region.directory.unload(TOPIC, "a test"))
        yield topic_codes(world)
        region.store.release()  # type: ignore[attr-defined]
        yield tuple
        await unloaded
        await sent


@situation(Cause.TOPIC_DELETING)
async def topic_deleting() -> AsyncIterator[Codes]:
    """A deleted log has no explanation any more, so the store is slow before that."""
    async with linked("us") as (world, us):
        await us.producer(TOPIC)
        region, go_on = world.running["us"], asyncio.Event()
        erase = region.directory._opener.erase

        async def slow(*wanted: Any, **more: Any) -> None:
            await go_on.wait()
            await erase(*wanted, **more)

        region.directory._opener.erase = slow  # type: ignore[method-assign]
        deleted = asyncio.ensure_future(region.directory.delete(TOPIC, force=True))
        yield topic_codes(world)
        go_on.set()
        await deleted
        yield tuple


@situation(Cause.REGION_LACKS)
async def region_lacks() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        producer = await replicated(world, us)
        world.cut("us", "eu")
        await producer.send(b"next")
        yield topic_codes(world)
        world.heal("us", "eu")
        yield tuple


@situation(Cause.TRANSACTION_OPEN)
async def transaction_open() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        transaction = await us.new_transaction()
        await (await us.producer(TOPIC)).send(b"x", transaction=transaction)
        yield topic_codes(world)
        await transaction.commit()
        yield tuple


# Exclusive producers.


@contextlib.asynccontextmanager
async def waiting(world: Regions, us: Client) -> AsyncIterator[None]:
    """A producer that waits for exclusive access."""
    work = asyncio.ensure_future(us.producer(TOPIC, name="next", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE))
    try:
        await until(
            lambda: TOPIC in world.running["us"].directory.serving and bool(topic_of(world).access.line)
        )
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@situation(Cause.ACCESS_OWNED)
async def access_owned() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        owner = await us.producer(TOPIC, name="owner", access_mode=AccessMode.EXCLUSIVE)
        async with waiting(world, us):
            yield topic_codes(world)
            await owner.close()
            yield tuple


@situation(Cause.ACCESS_SHARED)
async def access_shared() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        owner = await us.producer(TOPIC)
        async with waiting(world, us):
            yield topic_codes(world)
            await owner.close()
            yield tuple


@situation(Cause.ACCESS_CHANGES)
async def access_changes() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        owner = await us.producer(TOPIC, name="owner", access_mode=AccessMode.EXCLUSIVE)
        async with waiting(world, us):
            second = asyncio.ensure_future(
                us.producer(TOPIC, name="last", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
            )
            await until(lambda: len(topic_of(world).access.line) == 2)
            store = world.running["us"].store
            store.hold()  # type: ignore[attr-defined]
            await owner.close()
            yield topic_codes(world)
            store.release()  # type: ignore[attr-defined]
            yield tuple
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)


@situation(Cause.ACCESS_ELSEWHERE)
async def access_elsewhere() -> AsyncIterator[Codes]:
    async with linked() as (world, us):
        policies = world.running["us"].policies
        await policies.set(NAMESPACE, EXCLUSIVE_HOME, "eu")
        async with waiting(world, us):
            yield topic_codes(world)
            await policies.set(NAMESPACE, EXCLUSIVE_HOME, "us")
            yield tuple


@situation(Cause.ACCESS_KEPT)
async def access_kept() -> AsyncIterator[Codes]:
    async with linked("us", exclusive_patience_ms=600) as (world, us):
        async with world.client("us") as former:
            await former.producer(TOPIC, name="owner", access_mode=AccessMode.EXCLUSIVE)
            await world.crash("us")
        await world.start("us")
        async with waiting(world, us):
            yield topic_codes(world)
            yield tuple  # the wait for the former owner ends by itself


# Transactions.


@situation(Cause.TRANSACTION_NOT_ENDED)
async def transaction_not_ended() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        transaction = await us.new_transaction()
        yield codes_of(world, "us", "transaction", transaction.id.text)
        await transaction.commit()
        yield tuple


@contextlib.asynccontextmanager
async def decided(
    refusals: Mapping[tuple[str, str | None], str],
) -> AsyncIterator[tuple[Codes, Callable[[], None]]]:
    """Yield a decided transaction whose participants do not confirm it, and a function that makes them."""
    async with linked("us") as (world, us):
        transaction = await us.new_transaction()
        most, least = transaction.id.most, transaction.id.least
        life = world.running["us"].coordinators.life(most)
        live = life.core.live[least]
        live.status, live.why = TransactionStatus.COMMITTING, "requested by its client"
        life.teller.refused[least] = dict(refusals)

        def confirm() -> None:
            del life.teller.refused[least]
            live.status = TransactionStatus.OPEN

        yield codes_of(world, "us", "transaction", transaction.id.text), confirm
        await transaction.commit()


@situation(Cause.PARTICIPANTS_PENDING)
async def participants_pending() -> AsyncIterator[Codes]:
    async with decided({}) as (codes, confirm):
        yield codes
        confirm()
        yield tuple


@situation(Cause.PARTICIPANT_REFUSED)
async def participant_refused() -> AsyncIterator[Codes]:
    async with decided({(TOPIC, None): "no room"}) as (codes, confirm):
        yield codes
        confirm()
        yield tuple


@situation(Cause.KEY_IN_USE)
async def key_in_use() -> AsyncIterator[Codes]:
    async with linked("us") as (world, us):
        us._transaction_key = "settlement"
        transaction = await us.new_transaction()
        yield codes_of(world, "us", "transaction-key", "settlement")
        await transaction.commit()
        yield tuple
