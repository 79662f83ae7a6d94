"""Each invariant has one number, one row and something that verifies it; every reference finds its row."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.swarm import invariants_table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "INVARIANTS.md"
FOLDERS = ("emulator", "geoemu", "spark_jobs", "tests", "docs", "examples", "benchmarks")
FILES = ("*.py", "*.md", "*.yaml", "*.html")


def numbers(page: str) -> list[int]:
    """Return the number of each row of the table of invariants, in the order of the page."""
    return [int(found) for found in re.findall(r"^\| INV-(\d+) \|", page, flags=re.MULTILINE)]


def next_free(taken: list[int]) -> str:
    return f"the next free number is INV-{max(taken) + 1}"


def referenced() -> dict[int, set[str]]:
    """Return which files name which invariant."""
    found: dict[int, set[str]] = {}
    for folder in FOLDERS:
        for kind in FILES:
            for path in (ROOT / folder).rglob(kind):
                for number in re.findall(r"\bINV-(\d+)\b", path.read_text(errors="replace")):
                    found.setdefault(int(number), set()).add(str(path.relative_to(ROOT)))
    return found


def test_an_invariant_has_one_number_and_one_row() -> None:
    taken = numbers(PAGE.read_text())
    twice = {f"INV-{number}" for number, times in Counter(taken).items() if times > 1}
    assert not twice, f"{sorted(twice)} have more than one row in {PAGE.name}; {next_free(taken)}"


def test_every_invariant_that_code_or_a_page_names_has_a_row() -> None:
    taken = numbers(PAGE.read_text())
    unknown = {
        f"INV-{number}": sorted(files) for number, files in referenced().items() if number not in taken
    }
    assert not unknown, f"{unknown} have no row in {PAGE.name}; {next_free(taken)}"


def test_the_page_of_checks_lists_them_as_the_code_has_them() -> None:
    assert invariants_table.PAGE.read_text() == invariants_table.text(), "run: make docs"


def test_every_invariant_has_a_check_a_mutant_or_a_test() -> None:
    rows = re.findall(r"^\| INV-(\d+) \|.*\|([^|]*)\|$", PAGE.read_text(), flags=re.MULTILINE)
    checked = set(numbers(invariants_table.text()))
    assert {number for number, tests in rows if not tests.strip()} <= {str(one) for one in checked}


def test_a_number_that_is_taken_twice_is_noticed_and_the_next_free_one_is_named() -> None:
    taken = numbers("| INV-1 | a\n| INV-7 | b\n| INV-7 | c\n")
    assert taken == [1, 7, 7]
    assert next_free(taken) == "the next free number is INV-8"
