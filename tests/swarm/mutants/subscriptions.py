"""Careless dispatch, and cursors that are not durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from emulator.broker.debounced_writer import DebouncedWriter
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch import (
    DispatchLimits,
    DispatchStrategy,
    Read,
    Shared,
    SingleActive,
    SubscriptionType,
    strategy_for,
)
from emulator.core.dispatch.types import ConsumerState
from tests.swarm.mutant import Mutant, parts


class _AnswersAtOnce(DebouncedWriter):
    def now(self) -> asyncio.Future[None]:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written.set_result(None)
        self.soon(WRITE_DELAY_SECONDS)
        return written


WRITE_DELAY_SECONDS = 0.02


class _TrustingSingleActive(SingleActive):
    def is_overtaken(self, read: Read) -> bool:
        return False


class _TrustingShared(Shared):
    def is_overtaken(self, read: Read) -> bool:
        return False


def _strategy_that_trusts_reads(
    type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits
) -> DispatchStrategy:
    match type_:
        case SubscriptionType.SHARED:
            return _TrustingShared(cursor, limits)
        case SubscriptionType.KEY_SHARED:
            return strategy_for(type_, cursor, limits)
    return _TrustingSingleActive(cursor, limits)


class _AcknowledgesWholeBatches(Cursor):
    def ack_batch(self, entry_id: int, ack_set: Sequence[int], batch_size: int) -> bool:
        return self.ack(entry_id)


class _SharedTakesNothingBack(Shared):
    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        return


class _SingleActiveTakesNothingBack(SingleActive):
    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        return


def _strategy_that_takes_nothing_back(
    type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits
) -> DispatchStrategy:
    match type_:
        case SubscriptionType.SHARED:
            return _SharedTakesNothingBack(cursor, limits)
        case SubscriptionType.KEY_SHARED:
            return strategy_for(type_, cursor, limits)
    return _SingleActiveTakesNothingBack(cursor, limits)


MUTANTS = (
    Mutant(
        "stale-read-used",
        "The dispatcher uses a read that a rewind has overtaken.",
        ("INV-5",),
        parts(strategy_for=_strategy_that_trusts_reads),
    ),
    Mutant(
        "acknowledgement-before-durable",
        "An acknowledgement is confirmed before the cursor is durable.",
        ("INV-9",),
        parts(debounced_writer=_AnswersAtOnce),
    ),
    Mutant(
        "whole-batch-acknowledged",
        "Acknowledging one message of a batch acknowledges the whole batch.",
        ("INV-5",),
        parts(cursor=_AcknowledgesWholeBatches),
    ),
    Mutant(
        "negative-acknowledgement-forgotten",
        "A negatively acknowledged message is not redelivered.",
        ("INV-17",),
        parts(strategy_for=_strategy_that_takes_nothing_back),
    ),
)
