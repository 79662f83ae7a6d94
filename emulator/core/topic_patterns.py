"""Patterns of topic names, matched in time linear in the length of the name.

Clients supply the patterns, and a short one can occupy a backtracking engine for years. So this module implements only
the regular part of Java's patterns, by Thompson's algorithm: a set of states, with one step per character. Steps are
cached.

    supported      literals, `.`, classes, `\\d \\w \\s` and their opposites, `\\Q…\\E`, groups, `|`, `* + ? {m,n}`
                   (also lazy, without a difference), `^` at the beginning and `$` at the end
    not supported  look-ahead, look-behind, back references, Unicode properties, flags: ValueError
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

PATTERN_LENGTH_MAX: Final = 1_024
STATES_MAX: Final = 4_096
STEPS_CACHED_MAX: Final = 4_096
"""Maximum number of cached steps of a pattern; when it is reached the cache is emptied."""

Test = Callable[[str], bool]
"""Function that returns whether a character matches."""
StatesBuilder = Callable[[int], int]
"""Function that adds the states of a part of the pattern, given the state that follows it. Returns the first state of
the part."""

_CLASSES: Final[dict[str, Test]] = {
    "d": lambda char: "0" <= char <= "9",
    "w": lambda char: char == "_" or (char.isascii() and char.isalnum()),
    "s": lambda char: char in " \t\n\x0b\f\r",
}


def _opposite(test: Test) -> Test:
    return lambda char: not test(char)


class TopicPattern:
    """A pattern that matches whole names, `tenant/namespace/topic`, of any domain."""

    def __init__(self, text: str) -> None:
        """Raise ValueError for a pattern that is invalid, too large or not supported."""
        if len(text) > PATTERN_LENGTH_MAX:
            raise ValueError(f"a pattern of {len(text)} characters; {PATTERN_LENGTH_MAX} are allowed")
        self._tests: list[Test | None] = []
        self._next: list[tuple[int, ...]] = []
        """State -> following states. A state without a test consumes no character."""
        self._end = self.add_state(None)
        # As in Pulsar, the domain in a pattern selects persistent or non-persistent topics and is not matched.
        begins = self.add_state(None, _Parser(text.rpartition("://")[2], self).parse()(self._end))
        self._begin = self._closure((begins,))
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def fits(self, full_name: str) -> bool:
        """Whether the pattern matches a topic's name or, for a partition, the name of its partitioned topic."""
        name = full_name.partition("://")[2]
        base, dash, number = name.rpartition("-partition-")
        return self._fits(name) or bool(dash and number.isdecimal() and self._fits(base))

    def _fits(self, name: str) -> bool:
        states, steps = self._begin, self._steps
        for char in name:
            after = steps.get((states, char))
            states = self._step(states, char) if after is None else after
            if not states:
                return False
        return self._end in states

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        passed: list[int] = []
        for state in states:
            test = self._tests[state]
            if test is not None and test(char):
                passed += self._next[state]
        after = self._closure(passed)
        if len(self._steps) >= STEPS_CACHED_MAX:
            self._steps.clear()
        self._steps[states, char] = after
        return after

    def _closure(self, states: Iterable[int]) -> frozenset[int]:
        """Return the states, and all states that are reached from them without consuming a character."""
        found, new = set[int](), list(states)
        while new:
            state = new.pop()
            if state not in found:
                found.add(state)
                if self._tests[state] is None:
                    new += self._next[state]
        return frozenset(found)

    def add_state(self, test: Test | None, *following: int) -> int:
        if len(self._tests) >= STATES_MAX:
            raise ValueError("the pattern repeats too much")
        self._tests.append(test)
        self._next.append(following)
        return len(self._tests) - 1

    def set_following(self, state: int, *following: int) -> None:
        self._next[state] = following


class _Parser:
    """A recursive-descent parser of one pattern."""

    def __init__(self, text: str, owner: TopicPattern) -> None:
        self._text = text
        self._at = 0
        self._state, self._set_following = owner.add_state, owner.set_following
        self._depth = 0

    def parse(self) -> StatesBuilder:
        parsed = self._alternatives()
        if self._at < len(self._text):
            raise self._error("a ) without its (")
        return parsed

    def _error(self, why: str) -> ValueError:
        return ValueError(f"pattern {self._text!r}, at {self._at}: {why}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next_char(self) -> str:
        char = self._peek()
        if not char:
            raise self._error("it ends too early")
        self._at += 1
        return char

    def _skip(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _alternatives(self) -> StatesBuilder:
        choices = [self._sequence()]
        while self._skip("|"):
            choices.append(self._sequence())
        if len(choices) == 1:
            return choices[0]
        return lambda after: self._state(None, *[make(after) for make in choices])

    def _sequence(self) -> StatesBuilder:
        parts: list[StatesBuilder] = []
        if self._depth == 0:
            self._skip("^")
        while (char := self._peek()) and char not in "|)":
            if char == "$" and self._depth == 0 and self._text[self._at + 1 : self._at + 2] in ("", "|"):
                self._at += 1
                break
            parts.append(self._repeated(self._atom()))

        def make(after: int) -> int:
            for part in reversed(parts):
                after = part(after)
            return after

        return make

    def _atom(self) -> StatesBuilder:
        if self._skip("\\Q"):
            literal, end, _ = self._text[self._at :].partition("\\E")
            self._at += len(literal) + len(end) if end else len(literal)
            return self._literal(literal)
        char = self._next_char()
        if char == "(":
            return self._group()
        if char == "[":
            return self._one(self._class())
        if char == ".":
            return self._one(lambda _: True)
        if char == "\\":
            return self._one(self._escape())
        if char in "*+?{^$":
            raise self._error(f"{char!r} has no meaning here")
        return self._one(lambda found: found == char)

    def _one(self, test: Test) -> StatesBuilder:
        return lambda after: self._state(test, after)

    def _literal(self, text: str) -> StatesBuilder:
        def make(after: int) -> int:
            for char in reversed(text):
                after = self._state(char.__eq__, after)
            return after

        return make

    def _group(self) -> StatesBuilder:
        if self._skip("?") and not self._skip(":"):
            raise self._error("a group with look-around, a name or flags is not supported")
        self._depth += 1
        parsed = self._alternatives()
        self._depth -= 1
        if not self._skip(")"):
            raise self._error("a ( without its )")
        return parsed

    def _escape(self) -> Test:
        char = self._next_char()
        if char.lower() in _CLASSES:
            test = _CLASSES[char.lower()]
            return test if char.islower() else _opposite(test)
        if char.isalnum():
            raise self._error(f"\\{char} is not supported")
        return lambda found: found == char

    def _class(self) -> Test:
        negated, tests = self._skip("^"), list[Test]()
        while not tests or not self._skip("]"):  # a leading "]" is a member
            tests.append(self._member())
        return _opposite(_any_of(tests)) if negated else _any_of(tests)

    def _member(self) -> Test:
        first = self._next_char()
        if first == "\\":
            return self._escape()
        if first in "[&" and self._peek() == first:
            raise self._error("a class within a class is not supported")
        if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            last = self._next_char()
            if last == "\\" or last < first:
                raise self._error(f"not a range: {first}-{last}")
            return lambda char: first <= char <= last
        return lambda char: char == first

    def _repeated(self, part: StatesBuilder) -> StatesBuilder:
        while (char := self._peek()) and char in "*+?{":
            self._at += 1
            minimum, maximum = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char) or self._counts()
            part = self._times(part, minimum, maximum)
            if self._peek() == "?":  # lazy
                self._at += 1
        return part

    def _counts(self) -> tuple[int, int | None]:
        inside, end, _ = self._text[self._at :].partition("}")
        minimum, comma, maximum = inside.partition(",")
        if not end or not minimum.isdecimal() or (maximum and not maximum.isdecimal()) or len(inside) > 9:
            raise self._error("not a number of repetitions")
        self._at += len(inside) + 1
        return int(minimum), int(maximum) if maximum else None if comma else int(minimum)

    def _times(self, part: StatesBuilder, minimum: int, maximum: int | None) -> StatesBuilder:
        if max(minimum, maximum or 0) > STATES_MAX or (maximum is not None and maximum < minimum):
            raise self._error("not a number of repetitions")

        def make(after: int) -> int:
            if maximum is None:
                # The repeated part continues with the loop's state, which therefore must exist first.
                end = self._loop(part, after)
            else:
                end = after
                for _ in range(maximum - minimum):
                    end = self._state(None, part(end), after)
            for _ in range(minimum):
                end = part(end)
            return end

        return make

    def _loop(self, part: StatesBuilder, after: int) -> int:
        loop = self._state(None)
        self._set_following(loop, part(loop), after)
        return loop


def _any_of(tests: list[Test]) -> Test:
    return lambda char: any(test(char) for test in tests)
