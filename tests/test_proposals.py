"""Each statement of a proposal names its implementation and a test, or the reason for a difference; the names exist."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from emulator.config.broker_settings import BrokerSettings
from emulator.config.compatibility import SWITCHES

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "proposals").glob("*.md"))
STATEMENTS_MIN = {
    "pip-136-metadata-sync": 25,
    "pip-33-replicated-subscriptions": 30,
    "pip-440-wait-for-exclusive-priority": 25,
    "pip-68-exclusive-producer": 25,
    "transaction-key": 35,
}
NAMED = re.compile(r"`([\w./-]+\.(?:py|yaml|proto))(?:::(\w+))?`")


def statements(page: Path) -> list[list[str]]:
    """Return the cells of each row, without the head of the table and its headings."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]
    return [row for row in rows if not row[0].startswith("**")]


ROWS = [(page.stem, row) for page in PAGES if page.stem != "README" for row in statements(page)]


def resolved(name: str) -> Path:
    """Return the file that a page names: `emulator/` may be left out."""
    path = ROOT / name
    return path if path.exists() else ROOT / "emulator" / name


@cache
def defined(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def missing(text: str) -> list[str]:
    """Return each file, class and test that a text names and that does not exist."""
    found = []
    for name, member in NAMED.findall(text):
        path = resolved(name)
        if not path.exists():
            found.append(name)
        elif member and member not in defined(path):
            found.append(f"{name}::{member}")
    return found


def test_each_proposal_has_a_page() -> None:
    assert {page.stem for page in PAGES} == {*STATEMENTS_MIN, "README"}


@pytest.mark.parametrize("page", sorted(STATEMENTS_MIN))
def test_a_page_lists_the_statements_of_its_proposal(page: str) -> None:
    assert sum(stem == page for stem, _ in ROWS) >= STATEMENTS_MIN[page]


@pytest.mark.parametrize(
    ("page", "row"), ROWS, ids=lambda value: str(value[0])[:60] if isinstance(value, list) else ""
)
def test_a_statement_names_its_implementation_and_a_test_or_a_reason(page: str, row: list[str]) -> None:
    assert len(row) == 4, f"{page}: {row[0]!r} has {len(row)} cells"
    statement, implementation, tests, difference = row
    assert statement
    assert NAMED.search(implementation) or difference, (
        f"{page}: {statement!r} names neither module nor reason"
    )
    assert "::test_" in tests or len(difference) > 20, f"{page}: {statement!r} names neither test nor reason"
    assert not missing(" ".join(row)), f"{page}: {statement!r}"
    assert all(member.startswith("test_") for _, member in NAMED.findall(tests)), f"{page}: {statement!r}"


def test_the_switches_settings_and_scenarios_that_a_page_names_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    switches = set(re.findall(r"switch `(\w+)`", text))
    scenarios = set(re.findall(r"scenario `([\w-]+)`", text))
    settings = set(re.findall(r"BrokerSettings` \(`(\w+)`\)", text))
    assert switches, scenarios
    assert switches <= set(SWITCHES)
    assert all((ROOT / "emulator" / "scenarios" / f"{name}.yaml").exists() for name in scenarios), scenarios
    assert settings <= {one.name for one in fields(BrokerSettings)}


def test_what_does_not_exist_is_noticed() -> None:
    text = (
        "`core/no_such.py::A` `core/replication/snapshots.py::NoSuch` `core/replication/snapshot_types.py::Skip` "
        "`tests/test_proposals.py`"
    )
    assert missing(text) == ["core/no_such.py", "core/replication/snapshots.py::NoSuch"]
