"""When topics are compacted."""

from __future__ import annotations

from typing import Any, Final

from emulator.core.policies.declaration import BELOW_ZERO, Codec, Policy, Scope

BYTES_MAX: Final = 2**63 - 1


def _threshold(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= BYTES_MAX:
        raise ValueError(f"{value!r} is not a whole number of bytes, 0 to {BYTES_MAX}")
    return value


BYTES: Codec[int] = Codec(_threshold, int, {"type": "integer", "minimum": 0, "maximum": BYTES_MAX})
COMPACTION_THRESHOLD: Policy[int] = Policy(
    name="compaction_threshold",
    at_namespace="compactionThreshold",
    namespaces_put=True,
    at_topic="compactionThreshold",
    below_zero=BELOW_ZERO,
    codec=BYTES,
    default=0,
    scopes=frozenset({Scope.NAMESPACE, Scope.TOPIC}),
    obeyed_by="emulator.broker.topic_assembly",
    doc="Bytes by which a topic's log must grow before it is compacted again. 0: only on request.",
)

POLICIES = (COMPACTION_THRESHOLD,)
