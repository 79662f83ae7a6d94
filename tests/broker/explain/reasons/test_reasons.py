"""Every reason is returned while its condition holds, and no longer. The register has a situation for each row of the
table."""

from __future__ import annotations

import ast
import asyncio
import copy
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import tests.broker.explain.reasons.failover_situations
import tests.broker.explain.reasons.machine_situations
import tests.broker.explain.reasons.metadata_situations
import tests.broker.explain.reasons.region_situations  # noqa: F401
from emulator.broker.explain.topics import explain
from emulator.model.reasons import NO_REASON, REASON_ROWS, Cause, ReasonRow, first_of, rows_of
from tests.broker.explain.reasons.region_situations import linked, replicated_subscription
from tests.broker.explain.reasons.situations import SITUATIONS
from tests.broker.regions import until

DEADLINE_SECONDS = 20.0
Node = TypeVar("Node", bound=ast.AST)


def of_question(cause: ReasonRow, codes: Iterable[str]) -> list[str]:
    """Return the codes that answer the same question."""
    rows = {row.code for row in rows_of(cause.question)}
    return [code for code in codes if code in rows]


async def drive(cause: ReasonRow) -> None:
    scene = SITUATIONS[cause]()
    try:
        async with asyncio.timeout(60):
            codes = await anext(scene)
            await until(lambda: of_question(cause, codes()) == [cause.code], DEADLINE_SECONDS)
            await anext(scene)
            await until(lambda: cause.code not in codes(), DEADLINE_SECONDS)
    finally:
        await scene.aclose()  # type: ignore[attr-defined]


IN_REAL_TIME = (Cause.SOURCE_SILENT, Cause.DISK_FAILING, Cause.ACCESS_CHANGES)
"""Situations that need the machine's clock, or leave failed requests of clients that are not awaited."""


@pytest.mark.usefixtures("simulation")
@pytest.mark.parametrize(
    "cause", [row for row in REASON_ROWS if row not in IN_REAL_TIME], ids=lambda cause: cause.code
)
async def test_a_reason_is_returned_alone_while_its_condition_holds(cause: ReasonRow) -> None:
    await drive(cause)


@pytest.mark.parametrize("cause", IN_REAL_TIME, ids=lambda cause: cause.code)
async def test_a_reason_is_returned_alone_in_real_time(cause: ReasonRow) -> None:
    await drive(cause)


def test_every_row_has_a_situation() -> None:
    assert SITUATIONS.keys() == set(REASON_ROWS)


# Nothing but the table makes reasons.

PRODUCT = Path(__file__).parents[4] / "emulator"
SAYS_WHY = re.compile(r"why_?not", re.IGNORECASE)
NOT_OF_THE_TABLE = {
    "broker/metadata/schemas.py": "why two schemas do not fit: a sentence of the comparison",
    "broker/admin/resources/schemas.py": "the same, as the admin API answers it",
    "scenarios/region_queries.py": "what a scenario waits for, and what a region answered",
}


def nodes_of(kind: type[Node]) -> Iterator[tuple[str, Node]]:
    for path in sorted(PRODUCT.rglob("*.py")):
        name = path.relative_to(PRODUCT).as_posix()
        if not name.startswith("simulation/") and name not in NOT_OF_THE_TABLE:
            yield from (
                (name, node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kind)
            )


def is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and bool(node.value) and isinstance(node.value, str)
    )


def test_only_the_table_makes_reasons() -> None:
    """A message outside of the table would have no condition and no test."""
    makers = {
        name
        for name, call in nodes_of(ast.Call)
        if isinstance(call.func, ast.Name) and call.func.id in ("Reason", "Explanation")
    }
    assert makers == {"model/reasons/row.py", "model/explanations.py"}


def test_no_reason_is_a_text_beside_the_table() -> None:
    """The value assigned, returned or sent as `why_not` is never a literal."""
    found = []
    for name, node in nodes_of(ast.stmt):
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_text(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [name for target in targets if SAYS_WHY.search(ast.unparse(target))]
        if isinstance(node, ast.FunctionDef) and SAYS_WHY.search(node.name):
            returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
            found += [name for value in returned if is_text(value)]
    for name, sent in nodes_of(ast.Dict):
        for key, value in zip(sent.keys, sent.values, strict=True):
            if isinstance(key, ast.Constant) and SAYS_WHY.search(str(key.value)) and is_text(value):
                found.append(name)
    assert found == []


# Several causes at once.


async def test_when_a_cause_ends_the_next_one_is_returned() -> None:
    async with linked("us", "eu", "ap") as (world, us):
        await replicated_subscription(world, us)
        await world.crash("eu")
        world.cut("us", "ap")

        def why() -> str:
            return explain(world.running["us"], "subscription", "orders s").why

        await until(lambda: "link to ap is down" in why())
        assert "eu" not in why()
        world.heal("us", "ap")
        await until(lambda: "link to eu is down" in why())
        await world.start("eu")
        await until(lambda: "consumers here have acknowledged nothing" in why())
        assert "no snapshot" not in why()


# What a row is made of.


def test_a_reason_has_the_details_that_its_row_names_and_no_others() -> None:
    with pytest.raises(TypeError, match=r"LINK_DOWN has \['here', 'region'\], not \['region'\]"):
        Cause.LINK_DOWN(region="eu")
    reason = Cause.LINK_DOWN(here="us", region="eu")
    assert (reason, reason.ends[0]) == ("the link is down", "link us eu")
    assert copy.deepcopy(reason).cause is Cause.LINK_DOWN


def test_a_message_of_a_remote_region_stays_on_one_line_of_bounded_length() -> None:
    reason = Cause.LINK_REFUSED(region="eu", message="{here}\n\x1b[31mno\r\n" + "x" * 10_000)
    assert reason.startswith("eu refuses the link: {here} [31mno xxx")
    assert len(reason) < 600


def test_of_several_reasons_the_first_of_the_table_is_returned() -> None:
    full, down = Cause.LINK_FULL(), Cause.LINK_DOWN(here="us", region="eu")
    assert first_of([full, NO_REASON, down]) is down
    assert first_of([NO_REASON]) is NO_REASON
