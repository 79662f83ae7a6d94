"""The progress output of a run."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from emulator.scenarios.progress import LiveProgress, PlainProgress, progress_for

from .virtual import ScenarioHarness

STEPS = """
    phase: all works
    begin: [fast, billing]
    wait: 3s
    kill: us-east
    finish: producers
"""


def test_plain_output_is_a_line_per_step_and_counts_now_and_then(tmp_path: Path) -> None:
    harness, output = ScenarioHarness(tmp_path), io.StringIO()
    harness.watcher = PlainProgress(output)  # type: ignore[assignment]
    harness.run(STEPS)
    assert (
        output.getvalue()
        == """\
example: 5 steps
— all works
   2  begin: [fast, billing]  (0.1 s)
    2.0 s  fast 190 published, billing 190 received
   3  wait: 3s  (3.0 s)
   4  kill: us-east  (0.5 s)
   5  finish: producers  (0.1 s)
    3.7 s  fast 360 published, billing 360 received; us-east killed
completed in 3.7 s
"""
    )


def test_plain_output_names_the_step_that_failed(tmp_path: Path) -> None:
    harness, output = ScenarioHarness(tmp_path), io.StringIO()
    harness.watcher = PlainProgress(output)  # type: ignore[assignment]
    harness.run("begin: billing\nwait_until: {consumer: billing, received: 900, within: 1s}")
    assert output.getvalue().splitlines()[-3:] == [
        "step 2 (wait_until: {consumer: billing, received: 900, within: 1s}): 100 of 900 within 1 s",
        "    1.1 s  billing 100 received",
        "ended after 1.1 s with 1 of 2 steps done",
    ]


def test_on_a_terminal_there_is_one_table_that_stays(tmp_path: Path) -> None:
    harness = ScenarioHarness(tmp_path)
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    progress = LiveProgress(console)
    harness.watcher = progress  # type: ignore[assignment]
    harness.run(STEPS)
    progress.close()
    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().rpartition("example  ")[2]
    assert "● us-east killed" in last
    assert "360 published" in last
    assert "completed in 3.7 s" in last


def test_output_decides_which_it_is() -> None:
    assert isinstance(progress_for(Console(file=io.StringIO())), PlainProgress)
    assert isinstance(progress_for(Console(file=io.StringIO(), force_terminal=True)), LiveProgress)
