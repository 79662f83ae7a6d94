"""The search of an entry by its origin, against a walk over the whole log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.replication.origin_search import OriginSearch
from emulator.core.replication.origins import Origin


@st.composite
def logs(draw: st.DrawFn) -> dict[int, Origin | None]:
    """A log: ids with gaps, entries of three origins that each ascend, some without an origin."""
    newest = {"a": 0, "b": 0, "c": 0}
    log: dict[int, Origin | None] = {}
    entry_id = draw(st.integers(0, 3))
    for region in draw(st.lists(st.sampled_from(["a", "b", "b", "b", "c", ""]), max_size=60)):
        if region:
            newest[region] += draw(st.integers(1, 3))
            # A topic that was created again has a higher ledger.
            ledger = 5 if newest[region] < 40 else 6
            log[entry_id] = Origin(region, ledger, newest[region])
        else:
            log[entry_id] = None
        entry_id += draw(st.sampled_from([1, 1, 1, 4]))
    return log


def search(log: dict[int, Origin | None], wanted: Origin, chunk: int) -> tuple[OriginSearch, int]:
    found = OriginSearch(wanted, min(log, default=0), max(log, default=-1) + 1)
    read = 0
    while not found.is_done:
        end = min(found.read_from + chunk, found.read_end)
        entries = [(entry_id, log[entry_id]) for entry_id in range(found.read_from, end) if entry_id in log]
        read += end - found.read_from
        found.chunk_read(end, entries)
    return found, read


@settings(max_examples=150, deadline=None)
@given(logs(), st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 70), st.integers(1, 8))
def test_it_finds_what_a_walk_finds(log, region, number, chunk):
    wanted = Origin(region, 5 if number < 40 else 6, number)
    found, _ = search(log, wanted, chunk)
    same = [(entry_id, one) for entry_id, one in log.items() if one is not None and one.region == region]
    assert found.found == next((entry_id for entry_id, one in same if one == wanted), None)
    if found.found is None:
        assert found.before == max((id_ for id_, one in same if one < wanted), default=None)
        assert found.after == min((id_ for id_, one in same if one > wanted), default=None)


def test_it_reads_few_entries_of_a_long_log():
    log: dict[int, Origin | None] = {id_: Origin("ab"[id_ % 2], 1, id_) for id_ in range(100_000)}
    found, read = search(log, Origin("a", 1, 77_776), 16)
    assert found.found == 77_776
    assert read <= 20 * 16


def test_a_rare_origin_is_found_with_at_most_one_pass():
    log: dict[int, Origin | None] = {id_: Origin("a", 1, id_) for id_ in range(50_000)}
    log[10] = Origin("b", 1, 3)
    found, read = search(log, Origin("b", 1, 3), 100)
    assert found.found == 10
    assert read <= 50_000
