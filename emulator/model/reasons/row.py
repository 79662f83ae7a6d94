"""Rows of the table of reasons, and the reasons created from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from string import Formatter
from typing import Final

DETAIL_CHARACTERS_MAX: Final = 500
"""Maximum length of a detail; longer ones are cut. Some details are text that a remote region sent."""
_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f]+")


class Question(Enum):
    """The question that a reason answers."""

    LINK = "why this region has no link to another region"
    REPLICATION = "why a replicator does not send, or a remote region lacks entries"
    SNAPSHOT = "why a topic has no newer snapshot of replicated subscriptions"
    POSITION = "why the position of a subscription is not sent to other regions"
    FAILOVER = "why a fail-over to another region redelivers or skips messages"
    DELIVERY = "why messages of a subscription are not consumed"
    TOPIC = "why a topic is not served, or its entries are not in every region"
    VISIBILITY = "why stored messages are not readable yet"
    PUBLISHING = "why clients cannot publish to a topic now"
    ACCESS = "why a producer waits for exclusive access"
    METADATA = "why a path of the configuration store has its value, and why it may be older than elsewhere"
    TRANSACTION = "why a transaction has not ended"
    READINESS = "why a region is not ready for clients"


_BY_NAME: Final[dict[str, ReasonRow]] = {}


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """One row of the table. `text` and `ends` name details in braces."""

    question: Question
    text: str
    when: str
    """The condition under which a component returns a reason of this row."""
    ends: tuple[str, ...] = ()
    """Events that remove the cause; empty if it needs no action, or ends by itself soon."""
    name: str = field(default="", init=False)
    """Name of the row's attribute in the table."""

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)
        _BY_NAME[name] = self

    def __reduce__(self) -> tuple[Callable[[str], ReasonRow], tuple[str]]:
        """Copy and unpickle by name, so that a copy is the row of the table, even in another process."""
        return _row_named, (self.name,)

    def __call__(self, **details: object) -> Reason:
        """Return the reason with these details. Raises TypeError unless they are exactly those that the row names."""
        named = {name for text in (self.text, *self.ends) for name in _fields(text)}
        if named != details.keys():
            raise TypeError(f"{self.name} has {sorted(named)}, not {sorted(details)}")
        shown = {name: _shown(detail) for name, detail in details.items()}
        return Reason(self, self.text.format(**shown), tuple(one.format(**shown) for one in self.ends))

    @property
    def code(self) -> str:
        """Name of the row in JSON and in the documentation."""
        return self.name.lower().replace("_", "-")


class Reason(str):
    """One sentence of the table. It is empty, and so false, when there is no reason."""

    __slots__ = ("cause", "ends")

    cause: ReasonRow | None
    ends: tuple[str, ...]
    """Events that remove the cause."""

    def __new__(cls, cause: ReasonRow | None, text: str, ends: tuple[str, ...]) -> Reason:
        made = super().__new__(cls, text)
        made.cause, made.ends = cause, ends
        return made

    @property
    def code(self) -> str:
        """Code of the row; empty when there is no reason."""
        return "" if self.cause is None else self.cause.code

    def __reduce__(self) -> tuple[type[Reason], tuple[ReasonRow | None, str, tuple[str, ...]]]:
        return Reason, (self.cause, str(self), self.ends)


NO_REASON: Final = Reason(None, "", ())
"""The empty reason."""


def _fields(text: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(text) if name]


def _shown(detail: object) -> object:
    """Return a detail as one line of at most `DETAIL_CHARACTERS_MAX` characters."""
    if not isinstance(detail, str):
        return detail
    line = _BREAKS.sub(" ", detail)
    return line if len(line) <= DETAIL_CHARACTERS_MAX else f"{line[:DETAIL_CHARACTERS_MAX]}…"


def _row_named(name: str) -> ReasonRow:
    return _BY_NAME[name]
