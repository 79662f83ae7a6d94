"""The page of transactions names a test for each statement of the proposal: each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "rooms" / "transactions.md"
HEADING = "## The proposal, statement by statement"


def rows() -> list[str]:
    _, _, table = PAGE.read_text().partition(HEADING)
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [line for line in lines[1:] if not line.startswith("| **")]


def named(row: str) -> list[tuple[str, str]]:
    """(file, test) of each test in a row; one without a file is in that of the test before it."""
    found, file = [], ""
    for path, test in re.findall(r"`(?:([\w/]+\.py)::)?(test_\w+)`", row):
        file = path.replace("T/", "tests/broker/transactions/") if path else file
        found.append((file, test))
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[2:50])
def test_each_statement_has_a_test_that_is_there(row: str) -> None:
    tests = named(row)
    assert tests, f"no test: {row}"
    for file, test in tests:
        assert f"def {test}(" in (ROOT / file).read_text(), (file, test)


def test_there_are_as_many_statements_as_the_proposal_makes() -> None:
    assert len(rows()) > 30
