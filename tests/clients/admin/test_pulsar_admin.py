"""Every command of Java's pulsar-admin against a region: it works, or it is rejected for a reason that is listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.admin.refusals import REFUSALS, listed, why
from tests.clients.admin.walking import WORKED, outcomes, working

PAGE = Path(__file__).parents[3] / "docs" / "PULSAR_ADMIN.md"


@pytest.mark.real
@pytest.mark.long
def test_no_command_is_rejected_for_its_parameters() -> None:
    found = outcomes()
    works = {one.command for one in found if one.word == WORKED}
    assert len(works) > 450
    refused = [one for one in found if one.word != WORKED]
    assert [one for one in refused if why(one.command, one.reason) is None] == []
    assert {listed(one.command, one.reason) for one in refused} == set(REFUSALS)
    assert works == working(PAGE.read_text())


@pytest.mark.parametrize(
    "error",
    [
        "auto_failover_policy: unknown field 'parameters'",
        'Unrecognized field "rack" (class BookieInfo)',
        "query: unexpected parameter isGlobal",
    ],
)
def test_a_rejected_name_is_never_a_listed_error(error: str) -> None:
    assert why("functions localrun", "java.io.IOException: anything else") is not None
    assert why("functions localrun", error) is None
