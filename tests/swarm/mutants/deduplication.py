"""Careless memories of what was stored before."""

from __future__ import annotations

import json
from typing import Any

from emulator.core.topic.deduplication import ProducerDeduplication, PublishVerdict, SourceWatermarks
from emulator.core.topic.state import TopicState
from emulator.model.values import Position
from tests.swarm.mutant import Mutant, parts


class _KnowsThisLifeOnly(ProducerDeduplication):
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


class _AcceptsEverything(SourceWatermarks):
    def accepts(self, source_region: str, position: Position) -> bool:
        return True


class _ChecksOutWhatWasAdmitted(TopicState):
    def head(self, ledger_id: int) -> bytes:
        durable, self.watermarks = self.watermarks, self.admitted_watermarks
        try:
            return super().head(ledger_id)
        finally:
            self.watermarks = durable


class _ForgetsWhatIsHidden(TopicState):
    """Its checkpoint omits `parts`: the batch entries that no consumer, or not every consumer, may receive."""

    def head(self, ledger_id: int) -> bytes:
        return json.dumps(json.loads(super().head(ledger_id)) | {"parts": {}}).encode()


MUTANTS = (
    Mutant(
        "source-positions-forgotten",
        "A region forgets which positions of another region it has stored.",
        ("INV-2", "INV-4", "INV-6"),
        parts(watermarks=_AcceptsEverything),
    ),
    Mutant(
        "deduplication-not-rebuilt",
        "After a restart a region knows nothing of what producers sent before it.",
        ("INV-2",),
        parts(deduplication=_KnowsThisLifeOnly),
    ),
    Mutant(
        "checkpoint-includes-undurable",
        "A checkpoint of the source positions includes messages that are not durable.",
        ("INV-2", "INV-6"),
        parts(topic_state=_ChecksOutWhatWasAdmitted),
    ),
    Mutant(
        "checkpoint-without-markers",
        "A checkpoint does not record which entries are markers and which are restricted to some regions.",
        ("INV-17", "INV-5"),
        parts(topic_state=_ForgetsWhatIsHidden),
    ),
)
