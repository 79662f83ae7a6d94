"""All words. To add one: a file that makes a Word, and its place in WORDS."""

from __future__ import annotations

from emulator.simulation import checkers
from emulator.simulation.vocabulary.anywhere import (
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
from emulator.simulation.vocabulary.consuming import (
    compacting,
    delaying,
    giving_up,
    labelling,
    limiting,
    ranking,
    sticking,
)
from emulator.simulation.vocabulary.lifetime import (
    carrying,
    deleting,
    expiring,
    finishing,
    idling,
    keeping_away,
    passing_by,
    resting,
    retaining,
    switching,
    trimming,
)
from emulator.simulation.vocabulary.proposals import changing_metadata, holding_keys
from emulator.simulation.vocabulary.publishing import complying, cutting_up, encrypting, owning
from emulator.simulation.vocabulary.spread import spreading
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

ASKED_FOR: tuple[Word, ...] = (
    holding_keys.WORD,
    changing_metadata.WORD,
    delaying.WORD,
    spreading.WORD,
    compacting.WORD,
    trimming.WORD,
    expiring.WORD,
    keeping_away.WORD,
    giving_up.WORD,
    labelling.WORD,
    sticking.WORD,
    ranking.WORD,
    limiting.WORD,
    cutting_up.WORD,
    encrypting.WORD,
    complying.WORD,
    owning.WORD,
    carrying.WORD,
    passing_by.WORD,
    retaining.WORD,
    finishing.WORD,
    idling.WORD,
    deleting.WORD,
    resting.WORD,
    switching.WORD,
)
"""Words with worlds of their own, which are drawn when they are asked for by the word's name: seeds of the swarm stay
what they are."""

CHECKS = (*checkers.CHECKS, *(check for word in (*WORDS, *ASKED_FOR) for check in word.checks))
"""What every world is judged by."""
