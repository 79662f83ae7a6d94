"""INV-12 over partial snapshots: what snapshots and updates say of the regions that they name, and of no other."""

from __future__ import annotations

import pytest

from spark_jobs.checks.check import Circumstances
from spark_jobs.checks.position_claims import SNAPSHOTS
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.sources.policies import Namespace
from spark_jobs.sources.stored_values import place_number
from tests.spark_jobs.literal import TOPIC, Row, published, result_of, stored

THREE = Circumstances({"public/default": Namespace(("a", "b", "c"), deduplication=True)})
LATE = 7
"""Position in a of a message of c that b stored at position 0."""


def snapshot_of_a(*others: str) -> list[Row]:
    """Rows of a snapshot of a at position 5 that names position 5 in each of `others`."""
    return [(TOPIC, "a", "1:6:-1", place_number(1, 5), other, place_number(1, 5)) for other in others]


@pytest.mark.parametrize(("named", "verdict"), [(("b",), "valid"), (("b", "c"), "invalid")])
def test_a_snapshot_is_judged_by_messages_of_the_regions_that_it_names(
    engine: QueryEngine, named: tuple[str, ...], verdict: str
) -> None:
    """A partial snapshot says nothing of messages of the absent region c, of which b has more than a."""
    rows = [stored("b", 0, 1, "c"), stored("a", LATE, 1, "c"), stored("a", 0, 2), stored("b", 1, 2)]
    with use_engine(engine):
        result = result_of(
            SNAPSHOTS, rows, [published(2)], circumstances=THREE, snapshots=snapshot_of_a(*named)
        )
    assert result.verdict == verdict, result.sentence
