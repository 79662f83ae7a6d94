"""The summary of a history, which decides what a verdict has to look up in the logs."""

from __future__ import annotations

from spark_jobs.engines.contract import QueryEngine
from spark_jobs.frames.summary import summarise_history
from tests.spark_jobs.literal import history_frame, received


def test_deliveries_without_the_origin_of_their_message_are_counted(engine: QueryEngine) -> None:
    named = [received(1, "a"), received(2, "a")]
    assert summarise_history(history_frame(named)).unnamed == 0
    assert summarise_history(history_frame([*named, received(3, "b", named=False)])).unnamed == 1
