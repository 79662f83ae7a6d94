"""The pages of docs/reference/ are what `make docs` generates."""

from __future__ import annotations

import pytest

from scripts.figures import figures
from scripts.reference import FOLDER, pages


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return pages()


OF_TESTS = {"invariants.md", "mutants.md", "tampering.md", "workloads.md"}
"""tests/swarm and tests/spark_jobs/test_tampering.py compare them."""


@pytest.mark.parametrize("name", sorted({path.name for path in FOLDER.glob("*.md")} - OF_TESTS))
def test_a_reference_page_is_up_to_date(name: str, generated: dict[str, str]) -> None:
    assert (FOLDER / name).read_text() == generated[name], "run: make docs"


def test_every_generated_page_is_stored(generated: dict[str, str]) -> None:
    assert all((FOLDER / name).is_file() for name in generated)


def test_the_figures_of_the_concepts_are_up_to_date() -> None:
    assert not [path.name for path, content in figures().items() if path.read_text() != content], (
        "run: make docs"
    )
