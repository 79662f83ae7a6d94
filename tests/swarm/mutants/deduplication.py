"""Mutants of deduplication: its state is lost, incomplete or ahead of the durable log."""

from __future__ import annotations

import json
from typing import Any

from emulator.core.topic.deduplication import ProducerDeduplication, PublishVerdict, SourceWatermarks
from emulator.core.topic.state import TopicState
from emulator.model.values import Position
from tests.swarm.mutant import Mutants, part

MUTANTS = Mutants()


@MUTANTS.mutant("deduplication-not-rebuilt", "INV-2", patch=part("deduplication"))
class _DeduplicationNotRebuilt(ProducerDeduplication):
    """After a restart a region knows nothing of what producers sent before it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen: set[str] = set()

    def admit(
        self, name: str, sequence_id: int, highest_sequence_id: int, *, is_chunk_not_last: bool = False
    ) -> PublishVerdict:
        verdict = super().admit(name, sequence_id, highest_sequence_id, is_chunk_not_last=is_chunk_not_last)
        if verdict is PublishVerdict.ACCEPT and not is_chunk_not_last:
            self._seen.add(name)
        return verdict

    def persisted(self, name: str, highest_sequence_id: int) -> None:
        if name in self._seen:
            super().persisted(name, highest_sequence_id)


@MUTANTS.mutant("source-positions-forgotten", "INV-2", "INV-4", "INV-6", patch=part("watermarks"))
class _SourcePositionsForgotten(SourceWatermarks):
    """A region forgets which positions of another region it has stored."""

    def advance(self, source_region: str, position: Position) -> bool:
        super().advance(source_region, position)
        return True


@MUTANTS.mutant("checkpoint-includes-undurable", "INV-2", "INV-6", patch=part("topic_state"))
class _CheckpointIncludesUndurable(TopicState):
    """A checkpoint of the source positions includes messages that are not durable."""

    def head(self, ledger_id: int) -> bytes:
        durable, self.watermarks = self.watermarks, self.admitted_watermarks
        try:
            return super().head(ledger_id)
        finally:
            self.watermarks = durable


@MUTANTS.mutant("checkpoint-without-markers", "INV-17", "INV-5", patch=part("topic_state"))
class _CheckpointWithoutMarkers(TopicState):
    """A checkpoint does not record which entries are markers and which are restricted to some regions."""

    def head(self, ledger_id: int) -> bytes:
        return json.dumps(json.loads(super().head(ledger_id)) | {"parts": {}}).encode()
