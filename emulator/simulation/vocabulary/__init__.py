"""All words. To add one: a file that makes a Word, and its place in WORDS."""

from __future__ import annotations

from emulator.simulation import checkers
from emulator.simulation.vocabulary import (
    administering,
    ahead,
    claiming,
    evolving,
    forging,
    half_open,
    hoarding,
    lying,
    neighbours,
    oversized,
    repeating,
    restarting,
    seeking,
    sharing_keys,
    transacting,
    unsubscribing,
)
from emulator.simulation.vocabulary.word import Word

WORDS: tuple[Word, ...] = (
    seeking.WORD,
    unsubscribing.WORD,
    ahead.WORD,
    repeating.WORD,
    neighbours.WORD,
    restarting.WORD,
    forging.WORD,
    hoarding.WORD,
    administering.WORD,
    oversized.WORD,
    half_open.WORD,
    lying.WORD,
    claiming.WORD,
    sharing_keys.WORD,
    evolving.WORD,
    transacting.WORD,
)

CHECKS = (*checkers.CHECKS, *(check for word in WORDS for check in word.checks))
"""What every world is judged by."""
