"""Commands of our client, parsed by protobuf: which fields are sent, and which are left out."""

from __future__ import annotations

import pytest

from emulator.model.values import AccessMode
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.commands import Command, CreateProducer, MessageIdData, Seek, Subscribe
from emulator.wire.frames import FrameBuffer
from emulator.wire.protobuf import decode_command


def asked(command: Command) -> pb.BaseCommand:
    [(_, data, _)] = list(FrameBuffer(2**20).feed(command.encode()))
    return decode_command(data)


def test_a_reader_says_where_it_begins_and_that_nothing_is_kept() -> None:
    start = MessageIdData(-1, -1, -1)
    request = Subscribe(1, "t", "s", 0, 2, "n", 0, 1, durable=False, start_message_id=start)
    subscribe = asked(request).subscribe
    assert not subscribe.durable
    assert (subscribe.start_message_id.ledgerId, subscribe.start_message_id.entryId) == (2**64 - 1, 2**64 - 1)
    durable = asked(Subscribe(1, "t", "s", 1, 2, "n", 0, 1)).subscribe
    assert durable.durable
    assert not durable.HasField("start_message_id")


def test_what_was_not_said_is_not_on_the_wire() -> None:
    create = asked(CreateProducer(1, "t", 2, 0, AccessMode.SHARED, is_name_given=False)).producer
    assert not create.HasField("producer_name")
    assert not create.HasField("topic_epoch")
    assert not create.HasField("queue_priority")
    full = asked(CreateProducer(1, "t", 2, 3, AccessMode(2), True, "n", 7, 5)).producer
    assert (full.producer_name, full.epoch, full.topic_epoch, full.queue_priority) == ("n", 3, 7, 5)
    assert full.producer_access_mode == pb.WaitForExclusive


@pytest.mark.parametrize("target", [MessageIdData(3, 4, -1), None])
def test_a_place_or_a_time_is_sought(target: MessageIdData | None) -> None:
    time_ms = 1_700_000_000_000 if target is None else None
    seek = asked(Seek(1, 2, target, time_ms)).seek
    assert seek.HasField("message_publish_time") == (target is None)
    assert seek.HasField("message_id") == (target is not None)
