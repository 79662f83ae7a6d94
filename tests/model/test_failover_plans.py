"""The JSON form of fail-over plans."""

from __future__ import annotations

import json

from emulator.model.failover_plans import FailoverPlan
from emulator.run.plan_record import FIELDS, is_plan


def test_a_plan_with_acknowledgements_beyond_mark_delete_can_be_recorded() -> None:
    plan = FailoverPlan(
        "persistent://public/default/orders",
        "billing",
        "us",
        "eu",
        redelivered_messages=3,
        exact=True,
        quiet=False,
        begun_at_ms=1,
        source_mark_delete="1:4",
        source_acknowledged=((6, 8), (10, 10)),
    )
    raw = plan.to_json()
    assert raw == json.loads(json.dumps(raw)), "it has JSON's types only"
    assert is_plan({name: value for name, value in raw.items() if name in FIELDS and value is not None})
    assert FailoverPlan.from_json(raw) == plan
