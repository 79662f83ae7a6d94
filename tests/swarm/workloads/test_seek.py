"""The selection of seeks that can be checked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.swarm.evidence import OperationResult
from tests.swarm.workloads.seek import lasting

TOPIC = "persistent://public/default/orders"


def seek_to(began: float, ended: float, entry: int) -> OperationResult:
    return OperationResult("seek", "accepted", began, ended, "sa", TOPIC, "sub", f"entry {entry}:-1")


def checked(*operations: OperationResult) -> list[str]:
    evidence = SimpleNamespace(
        operations=operations, delivered=SimpleNamespace(replicated=set()), subscribed={}
    )
    return [operation.detail for operation in lasting(cast(Any, evidence))]


@pytest.mark.parametrize(
    ("operations", "which"),
    [
        ([seek_to(1, 2, 7)], ["entry 7:-1"]),
        ([seek_to(1, 2, 7), seek_to(3, 4, 5)], ["entry 5:-1"]),
        ([seek_to(1.5, 2, 7), seek_to(1, 2.1, 5)], []),
        ([seek_to(1.5, 2, 7), seek_to(1, 2.1, 5), seek_to(3, 4, 6)], ["entry 6:-1"]),
    ],
)
def test_which_of_two_concurrent_seeks_counts_is_unknown(
    operations: list[OperationResult], which: list[str]
) -> None:
    assert checked(*operations) == which
