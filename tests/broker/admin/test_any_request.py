"""Requests that the served OpenAPI document allows, and many that it does not: each gets a response, and never a
5xx."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.broker.admin.served import Served, served

schemathesis = pytest.importorskip("schemathesis")

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("GEOEMU_EXAMPLES", "400"))
ANSWER_SECONDS = 30


@pytest.fixture(scope="module")
def us() -> Iterator[Served]:
    with served() as region:
        yield region


def operations_of(us: Served) -> list[Any]:
    """Every operation of the document that the region serves."""
    schema = schemathesis.openapi.from_dict(us.get("/geoemu/v1/openapi.json"))
    return [one.ok() for one in schema.get_all_operations()]


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_every_request_has_an_answer_and_none_is_the_region_s_fault(us: Served, mode: Any) -> None:
    operations = operations_of(us)
    assert len(operations) > 100

    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        operation = data.draw(st.sampled_from(operations))
        case = data.draw(operation.as_strategy(generation_mode=mode))
        response = case.call(base_url=f"http://127.0.0.1:{us.admin_port}", timeout=ANSWER_SECONDS)
        assert response.status_code < 500, (case.method, case.formatted_path, case.body, response.text)
        if response.status_code >= 400:
            assert "reason" in response.json()

    ask()
    assert us.ask("GET", "/admin/v2/brokers/health").body == b"ok"
