"""Forged claims of clients and regions are rejected, and other clients are not affected."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from emulator.broker.topic import producer as producer_module
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import InitialPosition
from emulator.model.markers import SubscriptionUpdate
from emulator.model.values import Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.entry import build_entry, plain_entry, replication_bytes_max, with_replication
from emulator.wire.entry_layout import assemble
from emulator.wire.frames import FRAME_PADDING_BYTES
from emulator.wire.markers import encode_marker
from emulator.wire.message_metadata import TXN_LEAST_TAG
from emulator.wire.protobuf import length_delimited
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import regions, until
from tests.broker.replication.test_replication import TOPIC, check_all_have, drained, publish, stored

FAR = Position(1, 10**9)
UPDATE = SubscriptionUpdate("s", (("us", Position(1, 10**6)),))


def metadata(name: str = "p", sequence_id: int = 0, **fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=1, **fields)  # type: ignore[arg-type]


FORGED: dict[str, Callable[[], bytes]] = {
    "an origin": lambda: with_replication(plain_entry("p", 0, 1, b"x"), "eu", FAR),
    "an origin without a position": lambda: build_entry(metadata(replicated_from="eu"), b"x"),
    "an origin without a name": lambda: build_entry(metadata(replicated_from=""), b"x"),
    "another producer": lambda: plain_entry("victim", 10**9, 1, b"x"),
    "an update": lambda: with_replication(encode_marker(UPDATE, 1)[0], "eu", FAR),
    "a marker under its own name": lambda: build_entry(metadata(marker_type=13), b"x"),
    "a marker that cannot be read": lambda: build_entry(metadata(marker_type=11), b"\xff\xff"),
    "a marker of no known number": lambda: build_entry(metadata(marker_type=77), b"x"),
    "the end of a transaction": lambda: build_entry(metadata(marker_type=21), b"x"),
}


@pytest.mark.parametrize("claim", FORGED)
async def test_forged_fields_of_a_client_are_rejected_without_effect_on_other_clients(
    claim: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of eu, of the victim, and every backlog are unchanged."""
    with caplog.at_level(logging.INFO):
        async with regions("us", "eu") as world, world.client("us") as us, world.client("eu") as eu:
            consumer = await us.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
            await publish(us, "victim", 3)
            client = await RawClient.connect(world)
            await client.open_producer()
            client.writer.write(send_frame(1, 0, data=FORGED[claim]()))
            error = (await client.next()).send_error
            assert (error.error, error.sequence_id) == (pb.NotAllowedError, 0)
            client.writer.write(send_frame(1, 1, data=plain_entry("p", 1, 1, b"0")))
            assert (await client.next()).send_receipt.sequence_id == 1
            await publish(us, "victim-2", 2)
            await publish(eu, "q", 2)
            await until(lambda: TOPIC in world.running["eu"].directory.serving and drained(world))
            await check_all_have(world, {"victim": 3, "p": 1, "victim-2": 2, "q": 2})
            assert len([await consumer.receive() for _ in range(8)]) == 8
    assert len([line for line in caplog.messages if line.startswith("refused: ")]) == 1


async def test_an_application_may_copy_the_properties_of_received_messages() -> None:
    """The copy includes the properties that replication added. It is a new message of the region that received it,
    there and everywhere: it makes no other message a duplicate, also after the logs are read again."""
    async with regions("us", "eu") as world:
        async with world.client("us") as us, world.client("eu") as eu:
            await publish(eu, "far", 3)
            consumer = await us.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
            copier = await us.producer(TOPIC, name="copier")
            for number in range(3):
                given = await consumer.receive()
                assert given.replicated_from == "eu"
                await copier.send(b"%d" % number, properties=given.properties)
            await until(lambda: drained(world))
            await check_all_have(world, {"far": 3, "copier": 3})
        for name in world.names:
            await world.crash(name)
        await world.start_all()
        async with world.client("eu") as eu:
            await publish(eu, "far again", 3)
            await until(lambda: drained(world))
            await check_all_have(world, {"far": 3, "copier": 3, "far again": 3})


UNREADABLE_PROPERTIES = (
    length_delimited(4, b"\xff" + TXN_LEAST_TAG),
    length_delimited(4, length_delimited(1, b"key")),
    length_delimited(4, length_delimited(2, b"value")),
    length_delimited(4, length_delimited(1, b"\xff") + length_delimited(2, b"value")),
    length_delimited(4, length_delimited(1, b"key") + length_delimited(2, b"\xff")),
    length_delimited(4, b""),
)


@pytest.mark.parametrize("unreadable", UNREADABLE_PROPERTIES)
async def test_an_entry_with_unreadable_properties_is_refused_and_its_producer_continues(
    unreadable: bytes,
) -> None:
    """Clients close their connection when they receive such an entry, again and again."""
    readable = length_delimited(4, length_delimited(1, b"key") + length_delimited(2, "é".encode()))
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer()
        for sequence_id, properties in enumerate((readable, unreadable, readable + unreadable, readable)):
            data = assemble(metadata(sequence_id=sequence_id).SerializeToString() + properties, b"0")
            client.writer.write(send_frame(1, sequence_id, data=data))
        responses = [await client.next() for _ in range(4)]
        refused = [one.send_error for one in responses if one.HasField("send_error")]
        assert [one.sequence_id for one in refused] == [1, 2]
        assert all("message properties" in one.message for one in refused)
        stored_ids = [one.send_receipt.sequence_id for one in responses if one.HasField("send_receipt")]
        assert stored_ids == [0, 3]


async def test_an_entry_with_unreadable_properties_does_not_stop_the_replication_of_its_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regions stored such entries once. These properties contain the tag of a transaction id, for which an entry is
    rewritten before it is sent to another region."""
    monkeypatch.setattr(producer_module, "check_properties", lambda data, payload_offset: None)
    data = assemble(metadata().SerializeToString() + UNREADABLE_PROPERTIES[0], b"0")
    async with regions("us", "eu") as world, world.client("us") as us:
        client = await RawClient.connect(world)
        await client.open_producer()
        client.writer.write(send_frame(1, 0, data=data))
        assert (await client.next()).send_receipt.sequence_id == 0
        await publish(us, "q", 2)
        await until(lambda: TOPIC in world.running["eu"].directory.serving and drained(world))
        topic = await world.running["eu"].directory.acquire(TOPIC, OpenMode.EXISTING)
        assert len(await topic.reading.read(0, 10, 1_000)) == 3


async def test_a_client_may_not_use_the_name_of_a_region() -> None:
    """In any spelling; and an authenticated region may not use another one's name."""
    async with regions("us", "eu", "ap") as world:
        for name in ("pulsar.repl.eu-->us", "pulsar.repl.eu", "pulsar.repl.nobody-->us", "pulsar.repl."):
            client = await RawClient.connect(world)
            client.ask_for_producer(1, name=name)
            assert (await client.next()).error.error == pb.NotAllowedError
        region = await RawClient.connect_as_region(world, "eu")
        assert (await region.next()).type == pb.BaseCommand.CONNECTED
        region.ask_for_producer(1, name="pulsar.repl.ap-->us")
        assert "does not belong to region 'eu'" in (await region.next()).error.message


@pytest.mark.parametrize(
    ("name", "secret", "answers_as"),
    [("eu", "guessed", None), ("eu", "", None), ("eu", None, "ap")],
    ids=["another secret", "no secret", "the answer of another region"],
)
async def test_a_peer_that_fails_authentication_is_disconnected(
    name: str, secret: str | None, answers_as: str | None
) -> None:
    async with regions("us", "eu", "ap") as world:
        wrong = {} if secret is None else {"secret": secret}
        client = await RawClient.connect_as_region(world, name, answers_as=answers_as, **wrong)
        assert (await client.next()).error.error == pb.AuthenticationError
        with pytest.raises(EOFError):
            await client.next()
        assert world.is_ready("eu")


async def test_a_peer_that_names_an_unknown_region_is_disconnected_at_once() -> None:
    async with regions("us", "eu") as world:
        client = await RawClient.connect(world, handshake=False)
        client.greet("geoemu-region", b"nobody")
        error = (await client.next()).error
        assert error.error == pb.AuthenticationError
        assert "'nobody' is not a peer of region us" in error.message


async def test_a_client_with_a_token_of_its_own_is_accepted_as_a_client() -> None:
    """Authentication is off, so credentials of a client are no reason to reject it."""
    async with regions("us") as world:
        client = await RawClient.connect(world, handshake=False)
        client.greet("token", b"mine")
        assert (await client.next()).type == pb.BaseCommand.CONNECTED


async def test_no_entry_after_a_rejected_entry_of_a_peer_is_admitted() -> None:
    """A watermark must not pass the hole: entries pipelined behind it are sent again when the peer reattaches, after
    the rejected one (A2)."""
    async with regions("us", "eu") as world:
        await world.stop("eu")
        peer = await RawClient.connect_as_region(world, "eu")
        assert (await peer.next()).type == pb.BaseCommand.CONNECTED
        await peer.open_producer(topic=TOPIC, name="pulsar.repl.eu-->us")
        good = [with_replication(plain_entry("q", n, 1, b"%d" % n), "eu", Position(9, n)) for n in range(4)]
        damaged = bytearray(good[1])
        damaged[-1] ^= 1
        sent = [good[0], bytes(damaged), good[2], good[3]]
        peer.writer.write(b"".join(send_frame(1, n, data=data) for n, data in enumerate(sent)))
        answers = [await peer.next()]
        assert answers[-1].send_error.error == pb.NotAllowedError
        await peer.open_producer(topic=TOPIC, name="pulsar.repl.eu-->us")
        peer.writer.write(b"".join(send_frame(1, n, data=data) for n, data in enumerate(good)))
        receipts = [(await peer.next()).send_receipt for _ in good]
        assert [receipt.highest_sequence_id for receipt in receipts] == [0, 1, 2, 3]
        assert [m.payload for m in await stored(world, "us")] == [b"0", b"1", b"2", b"3"]


def filled(name: str, total_bytes: int, payload_bytes: int) -> bytes:
    """An entry of exactly this size, the rest of it in a property."""
    empty = len(
        build_entry(metadata(name, properties=[pb.KeyValue(key="k", value="")]), b"x" * payload_bytes)
    )
    size = total_bytes - empty
    while True:
        value = "v" * size
        data = build_entry(
            metadata(name, properties=[pb.KeyValue(key="k", value=value)]), b"x" * payload_bytes
        )
        if len(data) <= total_bytes:
            return data
        size -= len(data) - total_bytes


async def test_an_entry_that_one_region_accepts_is_accepted_by_every_region() -> None:
    """The largest allowed entry is replicated; one byte more is rejected where it is published. It used to be
    acknowledged, and its replicated form closed both links again and again, for all topics."""
    async with regions("us", "eu", max_message_bytes=1_000) as world:
        client = await RawClient.connect(world)
        await client.open_producer()
        limit = 1_000 + FRAME_PADDING_BYTES - 256 - replication_bytes_max("us")
        client.writer.write(send_frame(1, 0, data=filled("p", limit + 1, 1_000)))
        error = (await client.next()).send_error
        assert error.error == pb.NotAllowedError
        assert f"exceeds the maximum of {limit}" in error.message
        client.writer.write(send_frame(1, 1, data=filled("p", limit, 1_000)))
        assert (await client.next()).send_receipt.sequence_id == 1
        await until(lambda: TOPIC in world.running["eu"].directory.serving and drained(world))
        assert len(await stored(world, "eu")) == 1


@pytest.mark.parametrize("size_bytes", [2_000, 40_000], ids=["refused there", "not sent"])
async def test_an_entry_that_another_region_never_accepts_parks_only_its_own_replicator(
    size_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Regions with different maximum sizes, which a topology rejects but a hand-made region.json does not: other topics
    continue, the link stays, and status and log show the reason."""

    with caplog.at_level(logging.INFO):
        settings = {"us": {"max_message_bytes": 50_000}, "eu": {"max_message_bytes": 1_000}}
        async with regions("us", "eu", of_region=settings) as world, world.client("us") as client:
            large = await client.producer(TOPIC, name="p")
            for payload in (b"0", b"x" * size_bytes, b"2"):
                await large.send(payload)
            region = world.running["us"]
            parked = region.directory.serving[TOPIC].replicators["eu"]
            await until(lambda: "parked" in parked.lifecycle.why_not)
            assert "the maximum of" in parked.lifecycle.why_not
            small = await client.producer("small")
            await small.send(b"goes on")
            replicator = region.directory.serving["persistent://public/default/small"].replicators["eu"]
            await until(lambda: replicator.backlog == 0)
            assert [m.payload for m in await stored(world, "eu")] == [b"0"]
            assert "parked" in parked.lifecycle.why_not
            assert parked.backlog >= 2
    assert len([line for line in caplog.messages if "parked" in line]) == 1
    down = [at for at, line in enumerate(caplog.messages) if line == "link to eu down"]
    closed = next(at for at, line in enumerate(caplog.messages) if "the region is stopping" in line)
    assert not [at for at in down if at < closed]
