"""Java's own pulsar-admin against a region: what the page says works, works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.admin.walking import WORKED, outcomes, working

PAGE = Path(__file__).parents[3] / "docs" / "PULSAR_ADMIN.md"


@pytest.mark.real
@pytest.mark.long
def test_every_command_that_the_page_says_works_does() -> None:
    """More may work: then the page is made anew."""
    found = {one.command: one for one in outcomes()}
    promised = working(PAGE.read_text())
    assert len(promised) > 200
    assert [found[name] for name in sorted(promised) if found[name].word != WORKED] == []
    assert [one for one in found.values() if "500" in one.reason or "internal error" in one.reason] == []
