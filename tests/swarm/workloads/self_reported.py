"""Judges of words whose programs judge themselves: they alone know what they were told, and say what was wrong with it
in the detail of their deed, behind a word that says of which kind it is."""

from __future__ import annotations

from collections.abc import Callable

from emulator.simulation.checkers import Found
from tests.swarm.evidence import Evidence


def told(word: str, kind: str, sentence: str) -> Callable[[Evidence], Found]:
    """What programs of a word say of this kind, after a sentence that says what is wrong with all of it."""

    def check(evidence: Evidence) -> Found:
        for deed in evidence.deeds:
            if deed.word == word and deed.detail.startswith(kind):
                said = f"{deed.topic}: {sentence}: {deed.detail.removeprefix(kind)}"
                yield said, {"region": deed.region, "topic": deed.topic}

    return check


def acted(word: str) -> Callable[[Evidence], bool]:
    """Whether there were any."""
    return lambda evidence: any(deed.word == word for deed in evidence.deeds)
