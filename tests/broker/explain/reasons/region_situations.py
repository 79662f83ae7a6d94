"""Situations of running regions: links, replicators, topics, subscriptions, producers and transactions."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest

import tests.broker.regions as set_up
from emulator.broker.connection.flow_control import PauseReason
from emulator.broker.explain.topics import explain
from emulator.broker.replication import link_handshake as handshake_module
from emulator.broker.replication import replicator as replicator_module
from emulator.broker.replication.link import PeerLink
from emulator.broker.replication.replicator import Replicator
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import EARLIEST, Client, ConsumerType, InitialPosition
from emulator.core.flow.rate_limit import UNLIMITED, RateLimit
from emulator.core.policies.lifetime import BACKLOG_QUOTAS, Quota, QuotaAction, QuotaKind
from emulator.core.policies.limits import PUBLISH_RATE
from emulator.core.policies.topics import EXCLUSIVE_HOME, REPLICATION_CLUSTERS
from emulator.errors import ProtocolError, ServerError
from emulator.model.explanations import with_conflicts
from emulator.model.frame_faults import FrameAction, FrameFault
from emulator.model.machine import HEALTHY, DiskCondition
from emulator.model.reasons import Cause, ReasonRow
from emulator.model.stored_keys import NamespacePath
from emulator.model.transaction_names import TransactionStatus
from emulator.model.values import AccessMode
from emulator.storage.faulty import FaultyStore, with_faults
from tests.broker.explain.reasons.situations import Codes, of_reason, situation
from tests.broker.regions import Regions, regions, until
from tests.broker.subscription.test_replicated_status import ask

TOPIC = "persistent://public/default/orders"
NAMESPACE = NamespacePath("public/default")
FROM_THE_START = InitialPosition.EARLIEST
NEVER_SECONDS = 3_600.0


@contextlib.asynccontextmanager
async def linked(*names: str, **changes: Any) -> AsyncIterator[tuple[Regions, Client]]:
    """Run regions with a client of the first one."""
    async with regions(*names, **changes) as world, world.client("us") as us:
        yield world, us


LINK, REPLICATION, SNAPSHOT = ("link", "us eu"), ("replication", "orders eu"), ("snapshot", "orders")
SUBSCRIPTION, ORDERS = ("subscription", "orders s"), ("topic", "orders")
Steps = AsyncIterator[Codes | None]
Act = Callable[[Regions, Client], Steps]


def in_regions(
    cause: ReasonRow, kind: str = "", name: str = "", *, names: tuple[str, ...] = ("us", "eu"), **changes: Any
) -> Callable[[Act], Act]:
    """Register a situation of running regions, with a client of the first one. The situation yields None to check the
    explanation of the object `kind` `name` in `us`, or a function that returns other codes. Code after a second yield
    is its clean-up."""

    def register(act: Act) -> Act:
        @situation(cause)
        async def scene() -> AsyncIterator[Codes]:
            async with (
                linked(*names, **changes) as (world, us),
                contextlib.aclosing(act(world, us)) as steps,  # type: ignore[type-var]
            ):
                yield await anext(steps) or codes_of(world, "us", kind, name)
                await anext(steps, None)
                yield tuple
                await anext(steps, None)

        return act

    return register


def codes_of(world: Regions, region: str, kind: str, name: str) -> Codes:
    return lambda: explain(world.running[region], kind, name).causes


def topic_of(world: Regions, region: str = "us") -> Topic:
    return world.running[region].directory.serving[TOPIC]


def subscription_of(world: Regions, region: str = "us") -> Subscription:
    return topic_of(world, region).subscriptions["s"]


def replicator_of(world: Regions) -> Replicator:
    return topic_of(world).replicators["eu"]


def delayed(owner: object, method: str) -> asyncio.Event:
    """Make all calls of an asynchronous method wait until the returned event is set."""
    go_on, real = asyncio.Event(), getattr(owner, method)

    async def slow(*arguments: Any, **more: Any) -> Any:
        await go_on.wait()
        return await real(*arguments, **more)

    setattr(owner, method, slow)
    return go_on


def slow_reads(topic: Topic) -> asyncio.Event:
    """Disable the topic's entry cache, and make all reads wait until the returned event is set."""
    topic.reading.recent = lambda *_: None  # type: ignore[method-assign]
    topic.reading.recent_parts = lambda *_: None  # type: ignore[method-assign]
    return delayed(topic.reading, "read")


async def replicated(world: Regions, us: Client) -> Any:
    """Create a producer of a topic, and wait until its first message is replicated to eu."""
    producer = await us.producer(TOPIC)
    await producer.send(b"first")
    await until(lambda: replicator_of(world).backlog == 0)
    return producer


# Links.


@in_regions(Cause.REPLICATED_SUBSCRIPTIONS_OFF, *SUBSCRIPTION)
async def replicated_subscriptions_off(world: Regions, us: Client) -> Steps:
    await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
    await world.stop("us")
    await world.start("us", replicated_subscriptions=False)
    await until(lambda: TOPIC in world.running["us"].directory.serving)
    yield
    await world.stop("us")
    await world.start("us")
    await until(lambda: TOPIC in world.running["us"].directory.serving)


@in_regions(Cause.LINK_NOT_TRIED)
async def link_not_tried(world: Regions, us: Client) -> Steps:
    region = world.running["us"]
    link = PeerLink(region, region.config.peers[0])
    yield of_reason(lambda: link.why_not)
    link.start()
    yield
    link.close()


@in_regions(Cause.LINK_REFUSED, *LINK)
async def link_refused(world: Regions, us: Client) -> Steps:
    await world.crash("eu")
    right, set_up.RUN_SECRET = set_up.RUN_SECRET, "another one"
    try:
        await world.start("eu")
    finally:
        set_up.RUN_SECRET = right
    yield
    await world.crash("eu")
    await world.start("eu")


@in_regions(Cause.LINK_TLS_FAILED, *LINK)
async def link_tls_failed(world: Regions, us: Client) -> Steps:
    async def connect(*_: object) -> None:
        raise ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:1)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.running["us"].environment.peer_network, "connect", connect)
        world.links["us", "eu"].reset()
        yield


@in_regions(Cause.LINK_SILENT, *LINK, of_region={"us": {"peer_keep_alive_interval_ms": 50}})
async def link_silent(world: Regions, us: Client) -> Steps:
    world.cut("us", "eu", "held")
    yield
    world.heal("us", "eu")


@in_regions(Cause.LINK_UNFINISHED, *LINK)
async def link_unfinished(world: Regions, us: Client) -> Steps:
    link = world.links["us", "eu"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handshake_module, "HANDSHAKE_SECONDS", 0.05)
        link.set(outbound=False, frame_faults=(FrameFault(FrameAction.DROP, "connected", 1_000),))
        link.reset()
        yield
    link.set(outbound=False, frame_faults=())


@in_regions(Cause.LINK_LOST, *LINK, peer_reconnect_backoff_ms=500)
@in_regions(Cause.LINK_UNREACHABLE, *LINK)
async def eu_is_down(world: Regions, us: Client) -> Steps:
    await world.crash("eu")
    yield
    await world.start("eu")


@in_regions(Cause.LINK_CUT, *LINK)
async def link_cut(world: Regions, us: Client) -> Steps:
    world.cut("us", "eu")
    yield
    world.heal("us", "eu")


@in_regions(Cause.LINK_REMOVED, *LINK)
async def link_removed(world: Regions, us: Client) -> Steps:
    await world.crash("eu")
    await until(lambda: not world.running["us"].peers["eu"].connected)
    assert (await ask(world, "us", "PUT", "/geoemu/v1/removed-regions/eu")).status == HTTPStatus.OK
    yield
    await ask(world, "us", "DELETE", "/geoemu/v1/removed-regions/eu")
    await world.start("eu")


@in_regions(Cause.LINK_HANDSHAKE, *LINK)
async def link_handshake(world: Regions, us: Client) -> Steps:
    await world.crash("eu")
    accepted: list[asyncio.StreamWriter] = []
    mute = await asyncio.start_server(
        lambda _, writer: accepted.append(writer), "127.0.0.1", world.ports["eu"]
    )
    yield
    mute.close()
    for writer in accepted:
        writer.close()
    await world.start("eu")


@in_regions(Cause.READINESS_LINK)
async def readiness_link(world: Regions, us: Client) -> Steps:
    await world.crash("eu")
    yield lambda: [one.code for one in world.running["us"].waiting_for({"eu"})]
    await world.start("eu")


# Replicators.


@in_regions(Cause.NOT_REPLICATED, *REPLICATION)
async def not_replicated(world: Regions, us: Client) -> Steps:
    await replicated(world, us)
    await world.running["us"].policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us",))
    yield
    await world.running["us"].policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us", "eu"))


@in_regions(Cause.LINK_DOWN, *REPLICATION)
async def link_down(world: Regions, us: Client) -> Steps:
    await replicated(world, us)
    world.cut("us", "eu")
    yield
    world.heal("us", "eu")


@in_regions(Cause.ENTRY_TOO_LARGE, *REPLICATION)
async def entry_too_large(world: Regions, us: Client) -> Steps:
    producer = await replicated(world, us)
    link = world.running["us"].peers["eu"]
    fits, link.entry_bytes_max = link.entry_bytes_max, 100
    await producer.send(b"x" * 200)
    yield
    link.entry_bytes_max = fits
    world.cut("us", "eu")
    await until(lambda: not link.connected)
    world.heal("us", "eu")


@in_regions(Cause.ENTRY_REFUSED, *REPLICATION)
async def entry_refused(world: Regions, us: Client) -> Steps:
    await replicated(world, us)
    replicator_of(world).entry_refused(ServerError.NotAllowedError, "too old")
    yield
    link = world.running["us"].peers["eu"]
    world.cut("us", "eu")
    await until(lambda: not link.connected)
    world.heal("us", "eu")


class Numbers:
    """A stub for the schema versions of the other region, with a response that the test sets."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.problem: ProtocolError | None = None

    def remote_version(self, version: bytes) -> bytes | None:
        return version if self.answer.done() else None

    async def learn(self, version: bytes) -> None:
        if self.problem is not None and not self.answer.done():
            raise self.problem
        await self.answer

    def forget(self) -> None:
        """Do nothing: the stub caches no versions."""


async def held_by_a_schema(world: Regions, us: Client, problem: ProtocolError | None) -> Numbers:
    producer = await replicated(world, us)
    numbers, replicator = Numbers(), replicator_of(world)
    numbers.problem = problem
    replicator._schemas.versions = numbers  # type: ignore[assignment]
    await producer.send(b"next")
    replicator._schemas.begin(b"\0\0\0\0\0\0\0\1") if replicator.lifecycle.why_not == "" else None
    return numbers


@in_regions(Cause.SCHEMA_ASKED, *REPLICATION)
async def schema_asked(world: Regions, us: Client) -> Steps:
    numbers = await held_by_a_schema(world, us, None)
    yield
    numbers.answer.set_result(None)


@in_regions(Cause.SCHEMA_REFUSED, *REPLICATION)
async def schema_refused(world: Regions, us: Client) -> Steps:
    refusal = ProtocolError(ServerError.IncompatibleSchema, "it does not fit")
    numbers = await held_by_a_schema(world, us, refusal)
    yield
    numbers.answer.set_result(None)


@in_regions(Cause.REPLICATOR_REFUSED, *REPLICATION)
async def replicator_refused(world: Regions, us: Client) -> Steps:
    await replicated(world, us)
    replicator_of(world).refused("no room")
    yield
    # the next attempt succeeds


@in_regions(Cause.RECEIPT_OUT_OF_TURN, *REPLICATION)
async def receipt_out_of_turn(world: Regions, us: Client) -> Steps:
    await replicated(world, us)
    replicator_of(world).receipts([(topic_of(world).ledger_id, 999, 1)])
    yield
    # the next attempt succeeds


@in_regions(Cause.RECEIPT_MISSING, *REPLICATION, of_region={"us": {"peer_keep_alive_interval_ms": 50}})
async def receipt_missing(world: Regions, us: Client) -> Steps:
    producer = await replicated(world, us)
    link = world.links["us", "eu"]
    link.set(outbound=False, frame_faults=(FrameFault(FrameAction.DROP, "send_receipt", 1_000),))
    await producer.send(b"next")
    yield
    link.set(outbound=False, frame_faults=())


async def eu_does_not_open(world: Regions, us: Client) -> Steps:
    """Situation: the replicator opens its producer in eu, whose store does not respond before the second step."""
    store = world.running["eu"].store
    store.hold()  # type: ignore[attr-defined]
    await (await us.producer(TOPIC)).send(b"first")
    try:
        yield
    finally:
        store.release()  # type: ignore[attr-defined]


in_regions(Cause.PRODUCER_ASKED, *REPLICATION)(eu_does_not_open)


@in_regions(Cause.PRODUCER_UNANSWERED, *REPLICATION)
async def producer_unanswered(world: Regions, us: Client) -> Steps:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicator_module, "OPEN_SECONDS", 0.05)
        async for step in eu_does_not_open(world, us):
            yield step
        yield


@in_regions(Cause.REPLICATOR_RESTS, *REPLICATION)
async def replicator_rests(world: Regions, us: Client) -> Steps:
    producer = await replicated(world, us)
    replicator_of(world).rest()
    yield
    await producer.send(b"next")


@in_regions(Cause.REPLICATION_RATE, *REPLICATION)
async def replication_rate(world: Regions, us: Client) -> Steps:
    producer = await replicated(world, us)
    replicator_of(world).rate.set(RateLimit(1, 0, 86_400))
    for _ in range(3):
        await producer.send(b"next")
    yield
    replicator_of(world).rate.set(UNLIMITED)


@in_regions(Cause.LINK_FULL, *REPLICATION)
async def link_full(world: Regions, us: Client) -> Steps:
    producer, link = await replicated(world, us), world.running["us"].peers["eu"]
    link.pause_writing()
    await producer.send(b"next")
    yield
    link.resume_writing()


@in_regions(Cause.READING_STORE, *REPLICATION)
async def reading_store(world: Regions, us: Client) -> Steps:
    producer, go_on = await replicated(world, us), slow_reads(topic_of(world))
    await producer.send(b"next")
    yield
    go_on.set()


@in_regions(Cause.IN_FLIGHT, *REPLICATION)
async def in_flight(world: Regions, us: Client) -> Steps:
    producer = await replicated(world, us)
    world.cut("us", "eu", "held")
    await producer.send(b"next")
    yield
    world.heal("us", "eu")


# Snapshots and positions.


async def replicated_subscription(world: Regions, us: Client) -> Any:
    """Create a consumer of a replicated subscription without acknowledgements, and wait for a snapshot."""
    consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
    await replicated(world, us)
    sync = topic_of(world).subscriptions.replicated
    assert sync is not None
    await until(lambda: bool(sync.snapshots.completed))
    return consumer


@in_regions(Cause.NO_SUBSCRIPTION, *SNAPSHOT)
async def no_subscription(world: Regions, us: Client) -> Steps:
    await replicated(world, us)
    yield
    await us.subscribe(TOPIC, "s", replicated=True)


@in_regions(Cause.SNAPSHOT_LINK_TO_DOWN, *SNAPSHOT)
async def snapshot_link_to_down(world: Regions, us: Client) -> Steps:
    await replicated_subscription(world, us)
    world.cut("us", "eu")
    yield
    world.heal("us", "eu")


@in_regions(
    Cause.SNAPSHOT_PARTIAL,
    *SNAPSHOT,
    names=("us", "eu", "ap"),
    of_region={"us": {"partial_snapshots_after": "100ms"}},
)
async def snapshot_partial(world: Regions, us: Client) -> Steps:
    await replicated_subscription(world, us)
    await world.crash("ap")
    yield
    await world.start("ap")


@in_regions(Cause.SNAPSHOT_LINK_FROM_DOWN, *SNAPSHOT)
async def snapshot_link_from_down(world: Regions, us: Client) -> Steps:
    await replicated_subscription(world, us)
    for outbound in (True, False):
        world.links["eu", "us"].set(outbound=outbound, state="cut")
    yield
    for outbound in (True, False):
        world.links["eu", "us"].set(outbound=outbound, state="up")


@in_regions(Cause.SNAPSHOT_REPLICATOR_DOWN, *SNAPSHOT)
async def snapshot_replicator_down(world: Regions, us: Client) -> Steps:
    await replicated_subscription(world, us)
    replicator = replicator_of(world)
    replicator._retry_seconds = NEVER_SECONDS
    replicator.refused("no room")
    yield
    replicator._retry_due()


@in_regions(Cause.SNAPSHOT_ONE_WAY, *SNAPSHOT, clusters={"us": "a", "eu": "b"})
async def snapshot_one_way(world: Regions, us: Client) -> Steps:
    """Situation: each region has its own configuration store, and the one of eu does not replicate to us."""
    await replicated_subscription(world, us)
    eu = world.running["eu"]
    await eu.policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("eu",))
    yield
    await eu.policies.set(NAMESPACE, REPLICATION_CLUSTERS, ("us", "eu"))


@in_regions(Cause.SUBSCRIPTION_NOT_REPLICATED)
async def subscription_not_replicated(world: Regions, us: Client) -> Steps:
    await us.subscribe(TOPIC, "s")
    topic = topic_of(world)
    yield of_reason(lambda: topic.subscriptions.replicated.why_not(subscription_of(world)))  # type: ignore[union-attr]
    topic.subscriptions.replicate(subscription_of(world))


async def conflict(world: Regions, us: Client) -> None:
    """Create a subscription that is replicated in us and not in eu, and acknowledge a message in us."""
    async with world.client("eu") as eu:
        await eu.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
    consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
    await replicated(world, us)
    await consumer.acknowledge(await consumer.receive(), confirmed=True)


def compared(world: Regions, region: str) -> Codes:
    """Return the codes for a region after `geoemu explain` has compared the explanations of all regions."""

    def codes() -> tuple[str, ...]:
        answers = [explain(one, "subscription", "orders s") for one in world.running.values()]
        (answer,) = (one for one in with_conflicts(answers) if one.region == region)
        return answer.causes

    return codes


@in_regions(Cause.POSITION_NOT_APPLIED_HERE)
async def position_not_applied_here(world: Regions, us: Client) -> Steps:
    await conflict(world, us)
    yield compared(world, "eu")
    topic_of(world, "eu").subscriptions.replicate(subscription_of(world, "eu"))


@in_regions(Cause.POSITION_NOT_APPLIED_THERE)
async def position_not_applied_there(world: Regions, us: Client) -> Steps:
    await conflict(world, us)
    codes = compared(world, "us")
    yield lambda: [code for code in codes() if code == Cause.POSITION_NOT_APPLIED_THERE.code]
    topic_of(world, "eu").subscriptions.replicate(subscription_of(world, "eu"))


@in_regions(Cause.POSITION_FOLLOWS)
async def position_follows(world: Regions, us: Client) -> Steps:
    async with world.client("eu") as eu:
        consumer = await replicated_subscription(world, us)
        await consumer.acknowledge(await consumer.receive(), confirmed=True)
        await until(lambda: "s" in topic_of(world, "eu").subscriptions)
        await until(lambda: subscription_of(world, "eu").backlog() == 0)
        yield codes_of(world, "eu", *SUBSCRIPTION)
        await (await eu.producer(TOPIC)).send(b"news")
        there = await eu.subscribe(TOPIC, "s", replicated=True)
        await there.acknowledge(await there.receive(), confirmed=True)
        yield


@in_regions(Cause.UPDATE_NOT_CONFIRMED)
async def update_not_confirmed(world: Regions, us: Client) -> Steps:
    consumer = await replicated_subscription(world, us)
    store = world.running["eu"].store
    store.hold()  # type: ignore[attr-defined]
    await consumer.acknowledge(await consumer.receive(), confirmed=True)
    yield codes_of(world, "us", *SUBSCRIPTION)
    store.release()  # type: ignore[attr-defined]
    yield


# Delivery.


@in_regions(Cause.NO_CONSUMER, *SUBSCRIPTION, names=("us",))
async def no_consumer(world: Regions, us: Client) -> Steps:
    consumer = await us.subscribe(TOPIC, "s")
    await consumer.close()
    await (await us.producer(TOPIC)).send(b"x")
    yield
    await us.subscribe(TOPIC, "s")


@in_regions(Cause.WAITS_FOR_CONSUMER, *SUBSCRIPTION, names=("us",))
async def waits_for_consumer(world: Regions, us: Client) -> Steps:
    """Situation: of two Key_Shared consumers one is paused, and messages of its keys wait for it."""
    types = {"type_": ConsumerType.KEY_SHARED}
    busy = await us.subscribe(TOPIC, "s", name="busy", start_paused=True, **types)  # type: ignore[arg-type]
    idle = await us.subscribe(TOPIC, "s", name="idle", **types)  # type: ignore[arg-type]
    producer = await us.producer(TOPIC)
    for number in range(40):
        await producer.send(b"x", key=f"key-{number}")
    reason = lambda: subscription_of(world).why_not()  # noqa: E731
    await until(lambda: reason().cause is Cause.WAITS_FOR_CONSUMER)
    assert "wait for consumer 'busy' (0 permits, 0 unacknowledged)" in reason()
    yield
    busy.resume()
    yield
    await idle.close()


@in_regions(Cause.DISPATCH_RATE, *SUBSCRIPTION, names=("us",))
async def dispatch_rate(world: Regions, us: Client) -> Steps:
    await us.subscribe(TOPIC, "s")
    subscription = subscription_of(world)
    subscription.dispatch_loop.set_rate(RateLimit(1, 0, 86_400))
    producer = await us.producer(TOPIC)
    for _ in range(3):
        await producer.send(b"x")
    yield
    subscription.dispatch_loop.set_rate(UNLIMITED)


@in_regions(Cause.NOT_DUE, *SUBSCRIPTION, names=("us",))
async def not_due(world: Regions, us: Client) -> Steps:
    await us.subscribe(TOPIC, "s", type_=ConsumerType.SHARED)
    at_ms = world.surroundings.wall_clock_ms() + 3_600_000
    await (await us.producer(TOPIC)).send(b"x", deliver_at_ms=at_ms)
    yield
    world.skews_ms["us"] = 4_000_000
    subscription_of(world).dispatch_loop.schedule()


@in_regions(Cause.READING_MESSAGES, *SUBSCRIPTION, names=("us",))
async def reading_messages(world: Regions, us: Client) -> Steps:
    producer = await us.producer(TOPIC)
    go_on = slow_reads(topic_of(world))
    await us.subscribe(TOPIC, "s")
    await producer.send(b"x")
    yield
    go_on.set()


@in_regions(Cause.SEEKING, *SUBSCRIPTION, names=("us",))
async def seeking(world: Regions, us: Client) -> Steps:
    consumer = await us.subscribe(TOPIC, "s")
    store = world.running["us"].store
    await (await us.producer(TOPIC)).send(b"x")
    store.hold()  # type: ignore[attr-defined]
    pending_seek = asyncio.ensure_future(consumer.seek(EARLIEST))
    yield
    store.release()  # type: ignore[attr-defined]
    yield
    await pending_seek


class Settling:
    """A stub for the pending acknowledgements of a transaction that is being committed."""

    is_over = False

    def is_settling(self) -> bool:
        return not self.is_over

    def pauses_dispatch(self) -> bool:
        return not self.is_over


@in_regions(Cause.SETTLING, *SUBSCRIPTION, names=("us",))
async def settling(world: Regions, us: Client) -> Steps:
    await us.subscribe(TOPIC, "s")
    await (await us.producer(TOPIC)).send(b"x")
    acks, subscription = Settling(), subscription_of(world)
    before, subscription.pending_acks = subscription.pending_acks, acks  # type: ignore[assignment]
    yield
    acks.is_over = True
    subscription.pending_acks = before


@in_regions(Cause.HELD_BY_TRANSACTION, *SUBSCRIPTION, names=("us",))
async def held_by_transaction(world: Regions, us: Client) -> Steps:
    consumer = await us.subscribe(TOPIC, "s", type_=ConsumerType.SHARED)
    await (await us.producer(TOPIC)).send(b"x")
    transaction = await us.new_transaction()
    await consumer.acknowledge(await consumer.receive(), transaction=transaction)
    yield
    await transaction.commit()


# Topics.


@in_regions(Cause.TOPIC_OPENING, *ORDERS, names=("us",))
async def topic_opening(world: Regions, us: Client) -> Steps:
    region = world.running["us"]
    await region.directory.acquire(TOPIC, OpenMode.CREATE)
    await region.directory.unload(TOPIC, "a test")
    go_on = delayed(region.store, "open_log")
    opened = asyncio.ensure_future(region.directory.acquire(TOPIC, OpenMode.CREATE))
    yield
    go_on.set()
    yield
    await opened


@in_regions(Cause.TOPIC_LEAVING, *ORDERS, names=("us",))
async def topic_leaving(world: Regions, us: Client) -> Steps:
    producer = await us.producer(TOPIC)
    region = world.running["us"]
    region.store.hold()  # type: ignore[attr-defined]
    sent = asyncio.ensure_future(producer.send(b"x"))
    await until(lambda: topic_of(world).publishing.issued > 0)
    unloaded = asyncio.ensure_future(region.directory.unload(TOPIC, "a test"))
    yield
    region.store.release()  # type: ignore[attr-defined]
    yield
    await unloaded
    await sent


@in_regions(Cause.TOPIC_DELETING, *ORDERS, names=("us",))
async def topic_deleting(world: Regions, us: Client) -> Steps:
    """Situation: the deletion waits before the log is deleted, since a deleted log has no explanation."""
    await us.producer(TOPIC)
    region = world.running["us"]
    go_on = delayed(region.directory._opener, "erase")
    deleted = asyncio.ensure_future(region.directory.delete(TOPIC, force=True))
    yield
    go_on.set()
    await deleted
    await until(lambda: TOPIC in region.directory.serving)  # its producer creates it again


@in_regions(Cause.REGION_LACKS, *ORDERS)
async def region_lacks(world: Regions, us: Client) -> Steps:
    producer = await replicated(world, us)
    world.cut("us", "eu")
    await producer.send(b"next")
    yield
    world.heal("us", "eu")


@in_regions(Cause.QUOTA_EXCEEDED, *ORDERS, names=("us",), housekeeping_interval_ms=5)
async def quota_exceeded(world: Regions, us: Client) -> Steps:
    await (await us.subscribe(TOPIC, "s")).close()
    quota = Quota(100, -1, QuotaAction.HOLD)
    await (await us.producer(TOPIC)).send(bytes(1_000))
    await world.running["us"].policies.set(NAMESPACE, BACKLOG_QUOTAS, {QuotaKind.SIZE: quota})
    yield None
    await world.running["us"].policies.set(NAMESPACE, BACKLOG_QUOTAS, None)
    yield None


@in_regions(Cause.PUBLISH_RATE, *ORDERS, names=("us",))
async def publish_rate(world: Regions, us: Client) -> Steps:
    producer = await us.producer(TOPIC)
    await world.running["us"].policies.set(NAMESPACE, PUBLISH_RATE, RateLimit(0, 1, 1))
    await producer.send(bytes(1_000))
    yield None
    await world.running["us"].policies.set(NAMESPACE, PUBLISH_RATE, None)
    yield None


@in_regions(Cause.CLIENT_MEMORY, *ORDERS, names=("us",))
async def client_memory(world: Regions, us: Client) -> Steps:
    await us.producer(TOPIC)
    (producer,) = topic_of(world).producers.values()
    flow_control = producer.connection.flow_control
    flow_control.pause(PauseReason.MEMORY)
    yield None
    flow_control.resume_memory()
    yield None


def disk_of(world: Regions) -> FaultyStore:
    """Give the region `us` a disk that can have faults. Called before a topic is loaded."""
    region = world.running["us"]
    region.store = store = with_faults(region.store, random.Random(1))
    return store


@in_regions(Cause.DISK_SLOW, *ORDERS, names=("us",))
async def disk_slow(world: Regions, us: Client) -> Steps:
    disk, producer = disk_of(world), await us.producer(TOPIC)
    disk.set_condition(DiskCondition("slow", 60_000))
    sent = asyncio.ensure_future(producer.send(b"x"))
    await until(lambda: topic_of(world).publishing.issued > 0)
    yield None
    disk.set_condition(HEALTHY)
    await sent
    yield None


@in_regions(Cause.DISK_FULL, *ORDERS, names=("us",))
async def disk_full(world: Regions, us: Client) -> Steps:
    disk, producer = disk_of(world), await us.producer(TOPIC)
    disk.set_condition(DiskCondition("full"))
    sent = asyncio.ensure_future(producer.send(b"x"))
    yield None
    assert not sent.done()
    disk.set_condition(HEALTHY)
    await sent
    yield None


@in_regions(Cause.DISK_FAILING, *ORDERS, names=("us",))
async def disk_failing(world: Regions, us: Client) -> Steps:
    """Situation: the topic is not loaded while its disk does not sync."""
    disk, producer = disk_of(world), await us.producer(TOPIC)
    disk.set_condition(DiskCondition("failing"))
    sent = asyncio.ensure_future(producer.send(b"x"))
    await until(lambda: TOPIC not in world.running["us"].directory.serving)
    yield None
    assert not sent.done()
    disk.set_condition(HEALTHY)
    await sent
    yield None


@in_regions(Cause.TRANSACTION_OPEN, *ORDERS, names=("us",))
async def transaction_open(world: Regions, us: Client) -> Steps:
    transaction = await us.new_transaction()
    await (await us.producer(TOPIC)).send(b"x", transaction=transaction)
    yield
    await transaction.commit()


# Exclusive producers.


@contextlib.asynccontextmanager
async def waiting(world: Regions, us: Client) -> AsyncIterator[None]:
    """Keep a producer waiting for exclusive access inside the `async with` block."""
    work = asyncio.ensure_future(us.producer(TOPIC, name="next", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE))
    try:
        await until(
            lambda: TOPIC in world.running["us"].directory.serving and bool(topic_of(world).access.waiting)
        )
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@in_regions(Cause.ACCESS_OWNED, *ORDERS, names=("us",))
async def access_owned(world: Regions, us: Client) -> Steps:
    owner = await us.producer(TOPIC, name="owner", access_mode=AccessMode.EXCLUSIVE)
    async with waiting(world, us):
        yield
        await owner.close()
        yield


@in_regions(Cause.ACCESS_SHARED, *ORDERS, names=("us",))
async def access_shared(world: Regions, us: Client) -> Steps:
    owner = await us.producer(TOPIC)
    async with waiting(world, us):
        yield
        await owner.close()
        yield


@in_regions(Cause.ACCESS_CHANGES, *ORDERS, names=("us",))
async def access_changes(world: Regions, us: Client) -> Steps:
    owner = await us.producer(TOPIC, name="owner", access_mode=AccessMode.EXCLUSIVE)
    async with waiting(world, us):
        second = asyncio.ensure_future(
            us.producer(TOPIC, name="last", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        )
        await until(lambda: len(topic_of(world).access.waiting) == 2)
        store = world.running["us"].store
        store.hold()  # type: ignore[attr-defined]
        await owner.close()
        yield
        store.release()  # type: ignore[attr-defined]
        yield
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


@in_regions(Cause.ACCESS_ELSEWHERE, *ORDERS)
async def access_elsewhere(world: Regions, us: Client) -> Steps:
    policies = world.running["us"].policies
    await policies.set(NAMESPACE, EXCLUSIVE_HOME, "eu")
    async with waiting(world, us):
        yield
        await policies.set(NAMESPACE, EXCLUSIVE_HOME, "us")
        yield


@in_regions(Cause.ACCESS_KEPT, *ORDERS, names=("us",), exclusive_grace_period_ms=600)
async def access_kept(world: Regions, us: Client) -> Steps:
    async with world.client("us") as former:
        await former.producer(TOPIC, name="owner", access_mode=AccessMode.EXCLUSIVE)
        await world.crash("us")
    await world.start("us")
    async with waiting(world, us):
        yield
        yield  # the grace period of the former owner ends by itself


# Transactions.


@in_regions(Cause.TRANSACTION_NOT_ENDED, names=("us",))
async def transaction_not_ended(world: Regions, us: Client) -> Steps:
    transaction = await us.new_transaction()
    yield codes_of(world, "us", "transaction", transaction.id.text)
    await transaction.commit()


async def decided(world: Regions, us: Client, refusals: Mapping[tuple[str, str | None], str]) -> Steps:
    """Situation: a committing transaction that participants do not confirm before the second step."""
    transaction = await us.new_transaction()
    least = transaction.id.least
    coordinator = world.running["us"].coordinators.get(transaction.id.most)
    live = coordinator.core.live[least]
    live.status, live.why = TransactionStatus.COMMITTING, "requested by its client"
    coordinator.notifier.refused[least] = dict(refusals)
    yield codes_of(world, "us", "transaction", transaction.id.text)
    del coordinator.notifier.refused[least]
    live.status = TransactionStatus.OPEN
    yield
    await transaction.commit()


in_regions(Cause.PARTICIPANTS_PENDING)(partial(decided, refusals={}))
in_regions(Cause.PARTICIPANT_REFUSED)(partial(decided, refusals={(TOPIC, None): "no room"}))


@in_regions(Cause.KEY_IN_USE, names=("us",))
async def key_in_use(world: Regions, us: Client) -> Steps:
    us._transaction_key = "settlement"
    transaction = await us.new_transaction()
    yield codes_of(world, "us", "transaction-key", "settlement")
    await transaction.commit()
