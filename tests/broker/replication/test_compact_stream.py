"""The private fields of a stream between regions: implied preceding entries, and receipts for several entries."""

from __future__ import annotations

import pytest

from emulator.model.values import Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import NO_PREVIOUS_ENTRY, send_frame
from emulator.wire.entry import plain_entry, with_replication
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions

SOURCE_LEDGER = 77


async def stream_of_eu(world: Regions, *, is_compact: bool = True) -> RawClient:
    await world.crash("eu")  # its own replicator would replace this one
    peer = await RawClient.connect_as_region(world, "eu")
    assert (await peer.next()).type == pb.BaseCommand.CONNECTED
    await peer.open_producer(name="pulsar.repl.eu-->us", compact_stream=is_compact)
    return peer


def send(entry_id: int, previous: int | None = None) -> bytes:
    data = with_replication(plain_entry("p", entry_id, 1, b"x"), "eu", Position(SOURCE_LEDGER, entry_id))
    return send_frame(1, entry_id, data=data, previous_entry=previous)


async def receipt(peer: RawClient) -> tuple[int, int, int]:
    """Return (ledger, entry, number of entries) of the next command, which must be a receipt."""
    command = await peer.next()
    assert command.type == pb.BaseCommand.SEND_RECEIPT, command
    found = command.send_receipt
    return found.sequence_id, found.highest_sequence_id, found.entries


async def test_one_receipt_confirms_the_entries_of_one_append() -> None:
    async with regions("us", "eu") as world:
        peer = await stream_of_eu(world)
        peer.writer.write(send(4, NO_PREVIOUS_ENTRY) + send(5) + send(6))
        assert await receipt(peer) == (SOURCE_LEDGER, 6, 3)
        peer.writer.write(send(7) + send(9, 7))
        assert await receipt(peer) == (SOURCE_LEDGER, 9, 2)


async def test_duplicates_are_confirmed_together_with_new_entries() -> None:
    async with regions("us", "eu") as world:
        peer = await stream_of_eu(world)
        peer.writer.write(send(4, NO_PREVIOUS_ENTRY) + send(4) + send(5) + send(4) + send(5))
        assert await receipt(peer) == (SOURCE_LEDGER, 5, 5)


async def test_a_real_pulsar_has_a_receipt_for_each_entry_and_implies_nothing() -> None:
    async with regions("us", "eu") as world:
        peer = await stream_of_eu(world, is_compact=False)
        peer.writer.write(send(4) + send(6) + send(9))
        assert [await receipt(peer) for _ in range(3)] == [(SOURCE_LEDGER, one, 1) for one in (4, 6, 9)]


@pytest.mark.parametrize(("first", "previous"), [(4, None), (4, 2), (5, 4), (5, 2**62)])
async def test_an_entry_is_rejected_if_the_one_before_it_is_missing(first: int, previous: int | None) -> None:
    """Whether the SEND names that entry or implies it; later entries of the stream are ignored."""
    async with regions("us", "eu") as world:
        peer = await stream_of_eu(world)
        peer.writer.write(send(0) + send(1))
        assert await receipt(peer) == (SOURCE_LEDGER, 1, 2)
        peer.writer.write(send(first, previous) + send(2))
        error = (await peer.next()).send_error
        assert (error.error, error.sequence_id) == (pb.ServiceNotReady, first)
        assert "did not arrive" in error.message
        await peer.open_producer(name="pulsar.repl.eu-->us", compact_stream=True)
        peer.writer.write(send(2, NO_PREVIOUS_ENTRY))
        assert await receipt(peer) == (SOURCE_LEDGER, 2, 1)


async def test_a_client_cannot_open_a_compact_stream() -> None:
    async with regions("us", "eu") as world:
        async with raw_client(world) as client:
            await client.open_producer(compact_stream=True)
            data = [plain_entry("p", sequence_id, 1, b"x") for sequence_id in (3, 7)]
            client.writer.write(send_frame(1, 3, data=data[0]) + send_frame(1, 7, data=data[1]))
            receipts = [(await client.next()).send_receipt for _ in range(2)]
        assert [(one.sequence_id, one.entries) for one in receipts] == [(3, 1), (7, 1)]
