"""Why messages of a subscription are not consumed, from what its strategy has set aside (emulator.model.reasons)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from emulator.core.dispatch.types import ConsumerState, DispatchLimits
from emulator.model.reasons import Cause, Reason, ReasonRow


class WaitingMessages(NamedTuple):
    """Messages that are not dispatched, by what they wait for. A batch counts as one."""

    number: int
    consumer: ConsumerState | None = None
    """The only one that may receive them; None: any."""
    holder: ConsumerState | None = None
    """It must acknowledge earlier messages of their keys first."""
    has_no_consumer: bool = False
    """No consumer takes their keys."""


def counted(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def reasons_of(
    groups: Iterable[WaitingMessages],
    consumers: Sequence[ConsumerState],
    limits: DispatchLimits,
    given: int | None,
) -> Iterator[Reason]:
    """`given`: messages that the only served consumer has not acknowledged, where the strategy counts none itself."""
    for group in groups:
        if group.has_no_consumer:
            yield Cause.NO_OWNER_OF_KEYS(count=counted(group.number))
        elif group.holder is not None:
            yield Cause.KEY_MOVED(count=counted(group.number), consumer=group.holder.name)
        elif group.consumer is not None:
            yield from _why_not_to(group.consumer, group.number, limits, given, Cause.WAITS_FOR_CONSUMER)
        else:
            yield from _why_to_none(consumers, group.number, limits)


def _why_to_none(consumers: Sequence[ConsumerState], count: int, limits: DispatchLimits) -> list[Reason]:
    """A reason for each consumer; none when one of them can receive messages."""
    cause = Cause.WAITS_FOR_PERMITS if len(consumers) > 1 else Cause.WAITS_FOR_CONSUMER
    found = [list(_why_not_to(one, count, limits, None, cause)) for one in consumers]
    return [reason for reasons in found for reason in reasons] if all(found) else []


def _why_not_to(
    consumer: ConsumerState, count: int, limits: DispatchLimits, given: int | None, without_permits: ReasonRow
) -> Iterator[Reason]:
    unacknowledged = consumer.unacked_messages if given is None else given
    if consumer.unacked_messages >= limits.unacked_messages_per_consumer_max:
        yield Cause.CONSUMER_UNACKED_MAX(
            count=counted(count),
            consumer=consumer.name,
            unacknowledged=consumer.unacked_messages,
            limit=limits.unacked_messages_per_consumer_max,
        )
    elif consumer.permits <= 0:
        yield without_permits(
            count=counted(count),
            consumer=consumer.name,
            permits=consumer.permits,
            unacknowledged=unacknowledged,
        )
    elif consumer.blocked:
        yield Cause.CONNECTION_FULL(count=counted(count), consumer=consumer.name)
