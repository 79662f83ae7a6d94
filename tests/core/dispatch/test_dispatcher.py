"""Which consumers may join, and the effect of an acknowledgement."""

from __future__ import annotations

import pytest

from emulator.errors import ProtocolError, ServerError
from tests.core.dispatch.playbook import (
    EXCLUSIVE,
    FAILOVER,
    SHARED,
    dispatched,
    joined,
    log,
    wanted,
)


def test_an_exclusive_subscription_takes_one_consumer(machine):
    """The second is rejected, and the first stays."""
    joined(machine, "a", EXCLUSIVE)
    with pytest.raises(ProtocolError) as caught:
        joined(machine, "b", EXCLUSIVE)
    assert caught.value.code is ServerError.ConsumerBusy
    assert [consumer.name for consumer in machine.strategy.consumers] == ["a"]


def test_types_cannot_be_mixed_while_a_consumer_is_connected(machine):
    first = joined(machine, "a", SHARED)
    with pytest.raises(ProtocolError, match="different type: SHARED"):
        joined(machine, "b", FAILOVER)
    machine.strategy.left(first, 0)
    joined(machine, "b", FAILOVER)
    assert machine.type is FAILOVER


def test_a_read_of_an_earlier_strategy_is_dropped(machine):
    """The last consumer left while a read was under way, and one of another type joined."""
    first = joined(machine, "a", EXCLUSIVE)
    read = wanted(machine)
    machine.strategy.left(first, 0)
    joined(machine, "b", SHARED)
    assert machine.strategy.offer(read, log(0), 0) == []


@pytest.mark.parametrize("entry_id", [-1, 3, 10**12])
def test_an_id_that_no_consumer_received_is_not_acknowledged(machine, entry_id):
    consumer = joined(machine, "a", EXCLUSIVE)
    machine.acknowledge(consumer, [(entry_id, None), (entry_id, (1,))], end_entry_id=3)
    machine.acknowledge_cumulative([(entry_id, None), (entry_id, (1,))], end_entry_id=3)
    assert (machine.cursor.mark_delete, machine.cursor.version) == (-1, 0)


def test_a_cumulative_acknowledgement_of_part_of_a_batch_keeps_the_rest(machine):
    joined(machine, "a", EXCLUSIVE)
    machine.acknowledge_cumulative([(2, (0b110,))], end_entry_id=3)
    assert (machine.cursor.mark_delete, machine.cursor.ack_set_of(2)) == (1, (0b110,))


def test_shared_consumers_cannot_acknowledge_cumulatively(machine):
    """A shared consumer does not know the messages of the others."""
    joined(machine, "a", SHARED)
    dispatched(machine, log(0, 1))
    machine.acknowledge_cumulative([(1, None)], end_entry_id=2)
    assert machine.cursor.mark_delete == -1
