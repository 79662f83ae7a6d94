"""Whether a backlog is over its quota, and what a producer is told then."""

from __future__ import annotations

from typing import NamedTuple

from emulator.core.policies.lifetime import QuotaAction, QuotaKind, Quotas
from emulator.errors import ProtocolError, ServerError


class Backlog(NamedTuple):
    """What is not acknowledged by the slowest subscription, or not in the slowest region."""

    size_bytes: int
    age_ms: int
    """Of its oldest message; 0 when there is none."""
    slowest: str


class Exceeded(NamedTuple):
    kind: QuotaKind
    action: QuotaAction
    sentence: str

    def refusal(self) -> ProtocolError | None:
        """What a producer is told that wants to attach; None: it may."""
        match self.action:
            case QuotaAction.HOLD:
                return ProtocolError(ServerError.ProducerBlockedQuotaExceededError, self.sentence)
            case QuotaAction.EXCEPTION:
                return ProtocolError(ServerError.ProducerBlockedQuotaExceededException, self.sentence)
            case QuotaAction.EVICT:
                return None


def exceeded(quotas: Quotas, backlog: Backlog) -> list[Exceeded]:
    """All that are, size first."""
    found = []
    size, age = quotas.get(QuotaKind.SIZE), quotas.get(QuotaKind.AGE)
    if size is not None and 0 <= size.limit_bytes < backlog.size_bytes:
        sentence = (
            f"the backlog of {backlog.slowest} is about {backlog.size_bytes:,} bytes; "
            f"the quota is {size.limit_bytes:,}"
        )
        found.append(Exceeded(QuotaKind.SIZE, size.action, sentence))
    if age is not None and age.limit_seconds >= 0 and age.limit_seconds * 1000 < backlog.age_ms:
        sentence = (
            f"the oldest message that {backlog.slowest} needs is {backlog.age_ms // 1000:,} s old; "
            f"the quota is {age.limit_seconds:,} s"
        )
        found.append(Exceeded(QuotaKind.AGE, age.action, sentence))
    return found
