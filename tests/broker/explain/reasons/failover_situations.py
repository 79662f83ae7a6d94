"""Situations of fail-over plans: figures and states that they are made of."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from emulator.core.replication.delivery_state import DeliveryState
from emulator.core.replication.failover_plan import PlannedFigures, reasons_of, skip_reasons_of
from emulator.model.failover_plans import FailoverPlan
from emulator.model.reasons import Cause, first_of
from emulator.model.values import Position
from emulator.runtimes.contract import RegionStatus
from emulator.scenarios.failover_plans import plan_failover
from tests.broker.explain.reasons.situations import Ask, Codes, of_machine, situation


def of_figures(figures: PlannedFigures, target: DeliveryState) -> Ask:
    return lambda: first_of([*reasons_of(target, figures), *skip_reasons_of(target, figures)])


def with_topic() -> DeliveryState:
    return DeliveryState("eu", last=Position(1, 7))


@of_machine(Cause.TOPIC_MISSING_THERE)
def the_target_has_no_topic() -> Iterator[Ask]:
    target = DeliveryState("eu", exists=False)
    yield of_figures(PlannedFigures(), target)
    target.last, target.exists = Position(1, 7), True


@of_machine(Cause.SUBSCRIPTION_MISSING_THERE)
def the_target_has_no_subscription() -> Iterator[Ask]:
    target = with_topic()
    target.exists = False
    yield of_figures(PlannedFigures(), target)
    target.exists = True


@of_machine(Cause.MESSAGES_MISSING_THERE)
def messages_are_not_replicated() -> Iterator[Ask]:
    figures = PlannedFigures(missing=3)
    yield of_figures(figures, with_topic())
    figures.missing = 0


@of_machine(Cause.MESSAGES_SKIPPED_THERE)
def the_target_acknowledged_messages() -> Iterator[Ask]:
    figures = PlannedFigures(skipped=3)
    yield of_figures(figures, with_topic())
    figures.skipped = 0


@of_machine(Cause.MESSAGES_NOT_ADDRESSED)
def producers_named_other_regions() -> Iterator[Ask]:
    figures = PlannedFigures(not_addressed=3)
    yield of_figures(figures, with_topic())
    figures.not_addressed = 0


@of_machine(Cause.PLAN_INCOMPLETE)
def a_log_is_too_long() -> Iterator[Ask]:
    figures = PlannedFigures(complete=False)
    yield of_figures(figures, with_topic())
    figures.complete = True


@situation(Cause.SOURCE_SILENT)
async def the_source_is_killed() -> AsyncIterator[Codes]:
    plan = FailoverPlan("orders", "s", "us", "eu", redelivered_messages=0, exact=True, quiet=True)
    responses = {"GET": with_topic().as_json(), "POST": plan.to_json()}

    async def call_region(region: RegionStatus, method: str, path: str, body: Any) -> tuple[int, bytes]:
        return 200, json.dumps(responses[method]).encode()

    regions = {name: RegionStatus(name, "test", "running", "", "", None) for name in ("us", "eu")}
    killed = {**regions, "us": RegionStatus("us", "test", "killed", "", "", None)}
    found = await plan_failover(killed, "orders", "s", "us", "eu", call_region)
    yield lambda: found.causes
    found = await plan_failover(regions, "orders", "s", "us", "eu", call_region)
    yield lambda: found.causes
