"""One owner at a time: grants compared with each other, with the log, and with the responses to clients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.cli.seed_report import store_run
from emulator.model.stored_keys import GrantKey
from spark_jobs.checks import one_owner
from spark_jobs.checks.check import Circumstances
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.verdict import CheckResult
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.literal import NAMESPACES, TOPIC, published, result_of, stored
from tests.swarm.generator.kinds import draw
from tests.swarm.mutants import overrides_without
from tests.swarm.runner import run_plan

pytestmark = pytest.mark.usefixtures("engine")

Stored = tuple[str, tuple[str, bytes]]


def granted(
    epoch: int, owner: str, first: int, end: int | None = None, *, said: int | None = None, region: str = "a"
) -> Stored:
    """Return a grant in a region's store. `said`: the epoch in its value, if it differs from that in its key."""
    row = {"epoch": epoch if said is None else said, "owner": owner, "first_entry": first, "end_entry": end}
    return region, (GrantKey.of(TOPIC, epoch).text, json.dumps({**row, "why": "", "at_ms": 1}).encode())


ROWS = [stored("a", entry, entry, producer="p" if entry < 3 else "q") for entry in range(6)]
"""Six entries: the first three are of p, the others of q."""
GRANTS = [granted(0, "p", 0), granted(1, "q", 3)]


def verdict(
    grants: list[Stored],
    rows: list[tuple[object, ...]] = ROWS,
    epochs: list[tuple[str, str, str, int]] | None = None,
    circumstances: Circumstances | None = None,
) -> CheckResult:
    return result_of(
        one_owner.CHECK,
        rows,
        [published(0)],
        grants=grants,
        epochs=epochs or (),
        circumstances=circumstances,
    )


def kinds(result: CheckResult) -> set[object]:
    return {one["kind"] for one in result.witness}


def test_each_in_its_own_epoch_is_valid() -> None:
    result = verdict(GRANTS, epochs=[("a", TOPIC, "p", 0), ("a", TOPIC, "q", 1)])
    assert (result.verdict, result.invariant) == ("valid", "INV-25")
    assert "2 grants" in result.sentence


def test_without_a_grant_nothing_is_checked() -> None:
    assert verdict([]).verdict == "not applicable"


def test_an_entry_of_another_producer_is_named_with_epoch_and_owner() -> None:
    result = verdict(GRANTS, [*ROWS, stored("a", 6, 9, producer="p")])
    assert result.verdict == "invalid"
    (witness,) = result.witness
    assert (witness["producer"], witness["position"]) == ("p", "1:6:-1")
    assert (witness["epoch"], witness["owner"], witness["region"]) == (1, "q", "a")


def test_replicated_entries_are_not_compared_with_grants() -> None:
    assert verdict(GRANTS, [*ROWS, stored("a", 6, 9, "b", producer="p")]).verdict == "valid"


def test_behind_the_end_of_a_grant_any_producer_may_publish() -> None:
    ended = [granted(0, "p", 0), granted(1, "q", 3, 6)]
    assert verdict(ended, [*ROWS, stored("a", 6, 9, producer="p")]).verdict == "valid"


@pytest.mark.parametrize(
    ("grants", "kind"),
    [
        ([GRANTS[0], granted(1, "q", 3, said=0)], "epoch decreases"),
        ([granted(0, "p", 0, 4), GRANTS[1]], "grants overlap"),
        ([granted(0, "p", 4), GRANTS[1]], "grants overlap"),
        ([granted(0, "p", 0, 3), granted(1, "q", 3, 2)], "grants overlap"),
    ],
)
def test_grants_that_contradict_each_other_are_invalid(grants: list[Stored], kind: str) -> None:
    result = verdict(grants)
    assert result.verdict == "invalid"
    assert kind in kinds(result)


@pytest.mark.parametrize(
    ("grants", "kind"),
    [
        ([GRANTS[0], granted(2, "q", 3)], "missing grant"),
        ([granted(1, "q", 3)], "missing grant"),
        ([GRANTS[0], ("a", (GrantKey.of(TOPIC, 1).text, b"{}"))], "unreadable grant"),
    ],
)
def test_a_missing_grant_makes_it_unknown(grants: list[Stored], kind: str) -> None:
    result = verdict(grants)
    assert result.verdict == "unknown"
    assert kinds(result) == {kind}


def test_a_gap_excuses_nothing_where_the_grants_are_known() -> None:
    grants = [GRANTS[0], granted(2, "q", 3)]
    assert verdict(grants, [*ROWS, stored("a", 6, 9, producer="p")]).verdict == "invalid"


def test_an_epoch_returned_without_a_grant_is_invalid() -> None:
    result = verdict(GRANTS, epochs=[("a", TOPIC, "r", 1)])
    assert result.verdict == "invalid"
    (witness,) = result.witness
    assert (witness["producer"], witness["epoch"], witness["owner"]) == ("r", 1, "q")


def test_an_epoch_returned_by_an_unreadable_region_is_not_proven_wrong() -> None:
    damaged = Circumstances(NAMESPACES, damaged_regions=frozenset("a"))
    result = verdict([], epochs=[("a", TOPIC, "p", 0)], circumstances=damaged)
    assert result.verdict == "unknown"


def judged_seed(engine: QueryEngine, seed: int, without: str | None, folder: Path) -> CheckResult:
    """Return the result of the check on the state that a seed's run left."""
    store_run(run_plan(draw("swarm", seed), overrides=overrides_without(without)), folder)
    (check,) = [one for one in evaluate_run(engine, folder).checks if one.name == one_owner.CHECK.name]
    return check


@pytest.mark.long
def test_an_epoch_returned_before_it_was_durable_is_found_in_a_simulated_run(
    engine: QueryEngine, tmp_path: Path
) -> None:
    """Only a run in which the region crashed, or its disk failed, before the epoch was durable has the violation."""
    claimed = (seed for seed in range(1, 100) if draw("swarm", seed).claimants)
    for seed in claimed:
        check = judged_seed(engine, seed, "epoch-notified-before-durable", tmp_path / f"careless-{seed}")
        if check.verdict == "invalid":
            assert "epoch returned without a grant" in {one["kind"] for one in check.witness}
            assert judged_seed(engine, seed, None, tmp_path / f"sound-{seed}").verdict == "valid"
            return
    pytest.fail("no seed of 99 showed it")
