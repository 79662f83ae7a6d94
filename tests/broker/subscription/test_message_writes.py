"""One dispatch decision is one write per consumer, with the frames of its messages in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st

from emulator.broker.subscription.message_writes import message_writes
from emulator.broker.topic.stored_entry import PlainEntry
from emulator.core.dispatch.types import ConsumerState, Delivery
from emulator.wire.codec_hot.consuming import message_header

LEDGER, PARTITION = 700, 4
STATES = [ConsumerState(str(number)) for number in range(3)]
CONSUMERS = {
    state: SimpleNamespace(consumer_id=10 + number, epoch=epoch)
    for number, (state, epoch) in enumerate(zip(STATES, (None, 3, 0), strict=True))
}
TOPIC = SimpleNamespace(ledger_id=LEDGER, name=SimpleNamespace(partition_index=PARTITION))
ENTRIES = [PlainEntry(120 + number, b"x" * (number % 5)) for number in range(40)]

Choice = tuple[int, int, tuple[int, ...] | None]
"""(consumer, redelivery count, ack set)"""
choices = st.tuples(
    st.sampled_from([0, 0, 1, 2]), st.sampled_from([0, 0, 0, 1, 7]), st.sampled_from([None, None, (5,), ()])
)


@given(st.lists(choices, max_size=40))
@example([(0, 0, None)] * 3 + [(0, 1, None)] + [(0, 0, None)] * 2)
@example([(1, 0, None), (0, 2, None), (1, 0, (1,)), (0, 0, None), (1, 0, None)])
def test_the_writes_have_the_frames_of_single_messages(chosen: list[Choice]) -> None:
    expected: dict[ConsumerState, bytes] = {}
    deliveries = []
    for index, (number, count, ack_set) in enumerate(chosen):
        state, entry = STATES[number], ENTRIES[index]
        deliveries.append(Delivery(state, index, count, ack_set))
        consumer = CONSUMERS[state]
        header = message_header(
            consumer.consumer_id,
            LEDGER,
            entry.entry_id,
            PARTITION,
            count,
            ack_set,
            consumer.epoch,
            len(entry.data),
        )
        expected[state] = expected.get(state, b"") + header + entry.data
    writes = message_writes(cast(Any, TOPIC), cast(Any, CONSUMERS), ENTRIES, deliveries)
    assert [(state, write.frames()) for state, write in writes.items()] == [*expected.items()]
