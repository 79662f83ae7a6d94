"""Mutants of dispatch and of the durability of cursors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from emulator.broker.debounced_writer import DebouncedWriter
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.dispatcher import strategy_for
from emulator.core.dispatch.shared import Shared
from emulator.core.dispatch.single_active import SingleActive
from emulator.core.dispatch.strategy import DispatchStrategy
from emulator.core.dispatch.types import ConsumerState, DispatchLimits, Read, SubscriptionType
from tests.swarm.mutant import Mutants, part

MUTANTS = Mutants()


@MUTANTS.mutant("acknowledgement-before-durable", "INV-9", patch=part("debounced_writer"))
class _AcknowledgementBeforeDurable(DebouncedWriter):
    """An acknowledgement is confirmed before the cursor is durable."""

    def now(self) -> asyncio.Future[None]:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written.set_result(None)
        self.soon(WRITE_DELAY_SECONDS)
        return written


WRITE_DELAY_SECONDS = 0.02


class _TrustingSingleActive(SingleActive):
    def is_obsolete(self, read: Read) -> bool:
        return False


class _TrustingShared(Shared):
    def is_obsolete(self, read: Read) -> bool:
        return False


@MUTANTS.mutant("stale-read-used", "INV-5", patch=part("strategy_for"))
def _stale_read_used(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
    """The dispatcher uses a read that a rewind has overtaken."""
    match type_:
        case SubscriptionType.SHARED:
            return _TrustingShared(cursor, limits)
        case SubscriptionType.KEY_SHARED:
            return strategy_for(type_, cursor, limits)
    return _TrustingSingleActive(cursor, limits)


@MUTANTS.mutant("whole-batch-acknowledged", "INV-5", patch=part("cursor"))
class _WholeBatchAcknowledged(Cursor):
    """Acknowledging one message of a batch acknowledges the whole batch."""

    def ack_batch(self, entry_id: int, ack_set: Sequence[int], batch_size: int) -> bool:
        return self.ack(entry_id)


class _SharedTakesNothingBack(Shared):
    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        return


class _SingleActiveTakesNothingBack(SingleActive):
    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        return


@MUTANTS.mutant("negative-acknowledgement-forgotten", "INV-17", patch=part("strategy_for"))
def _negative_acknowledgement_forgotten(
    type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits
) -> DispatchStrategy:
    """A negatively acknowledged message is not redelivered."""
    match type_:
        case SubscriptionType.SHARED:
            return _SharedTakesNothingBack(cursor, limits)
        case SubscriptionType.KEY_SHARED:
            return strategy_for(type_, cursor, limits)
    return _SingleActiveTakesNothingBack(cursor, limits)
