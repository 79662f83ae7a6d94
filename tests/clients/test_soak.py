"""The short form of `python -m benchmarks.soak`: the same checks, for seconds instead of minutes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from benchmarks.soak import Books, Sample, report, soak

pytestmark = pytest.mark.slow


def test_clients_and_a_region_that_are_killed_miss_nothing(tmp_path: Path) -> None:
    books = asyncio.run(soak(["python", "go"], 0.2, Random(7), str(tmp_path)))
    assert books.acknowledged
    assert books.kills_of_the_region
    assert not books.missing


def test_missing_messages_and_growing_memory_are_reported() -> None:
    def books(last_bytes: int) -> Books:
        samples = [Sample(at, last_bytes if at > 80 else 100, 100) for at in range(1, 101)]
        return Books(acknowledged={"a"}, received={"a": 1}, samples=samples)

    assert report(books(100), 1)[1]
    assert not report(books(200), 1)[1]
    lossy = books(100)
    lossy.acknowledged.add("b")
    assert not report(lossy, 1)[1]
