"""What our client asks and what it is told: both ends of the package must mean the same."""

from __future__ import annotations

import pytest

from emulator.errors import ServerError
from emulator.wire import answers, replies, requests
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import decode_command
from emulator.wire.frames import FrameBuffer


def told(frame: bytes) -> tuple[int, bytes]:
    [(type_, command, _)] = list(FrameBuffer(2**20).feed(frame))
    return type_, command


def asked(frame: bytes) -> pb.BaseCommand:
    return decode_command(told(frame)[1])


def test_a_reader_says_where_it_begins_and_that_nothing_is_kept() -> None:
    request = requests.subscribe(1, 2, "t", "s", type_=0, name="n", initial_position=1, start=(-1, -1, -1))
    subscribe = asked(request).subscribe
    assert not subscribe.durable
    assert (subscribe.start_message_id.ledgerId, subscribe.start_message_id.entryId) == (2**64 - 1, 2**64 - 1)
    durable = asked(requests.subscribe(1, 2, "t", "s", type_=1, name="n", initial_position=1)).subscribe
    assert durable.durable
    assert not durable.HasField("start_message_id")


def test_what_was_not_said_is_not_on_the_wire() -> None:
    create = asked(requests.create_producer(1, 2, "t", "", name_is_given=False)).producer
    assert not create.HasField("producer_name")
    assert not create.HasField("topic_epoch")
    assert not create.HasField("queue_priority")
    full = asked(
        requests.create_producer(
            1, 2, "t", "n", name_is_given=True, epoch=3, access_mode=2, topic_epoch=7, priority=5
        )
    ).producer
    assert (full.producer_name, full.epoch, full.topic_epoch, full.queue_priority) == ("n", 3, 7, 5)
    assert full.producer_access_mode == pb.WaitForExclusive


@pytest.mark.parametrize("target", [(3, 4, -1), 1_700_000_000_000])
def test_a_place_or_a_time_is_sought(target: tuple[int, int, int] | int) -> None:
    seek = asked(requests.seek(1, 2, target)).seek
    assert seek.HasField("message_publish_time") == isinstance(target, int)
    assert seek.HasField("message_id") == (not isinstance(target, int))


def test_a_refusal_says_why() -> None:
    error = answers.error(7, answers.ProtocolError(ServerError.TopicNotFound, "no such topic"))
    assert replies.read_reply(*told(error)) == replies.Refused(
        7, ServerError.TopicNotFound, "no such topic", True
    )


@pytest.mark.parametrize(
    ("command", "notice"),
    [
        (
            pb.BaseCommand(
                type=pb.BaseCommand.SEND_ERROR,
                send_error=pb.CommandSendError(
                    producer_id=1, sequence_id=2, error=pb.PersistenceError, message="full"
                ),
            ),
            replies.SendRefused(1, 2, ServerError.PersistenceError, "full"),
        ),
        (
            pb.BaseCommand(
                type=pb.BaseCommand.CLOSE_CONSUMER,
                close_consumer=pb.CommandCloseConsumer(consumer_id=5, request_id=6),
            ),
            replies.ConsumerClosed(5),
        ),
        (
            pb.BaseCommand(
                type=pb.BaseCommand.ACTIVE_CONSUMER_CHANGE,
                active_consumer_change=pb.CommandActiveConsumerChange(consumer_id=5, is_active=True),
            ),
            replies.ActiveChanged(5, True),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_notices_are_values(command: pb.BaseCommand, notice: replies.Notice) -> None:
    data = command.SerializeToString()
    assert replies.read_reply(command.type, data) is None
    assert replies.read_notice(command.type, data) == notice
