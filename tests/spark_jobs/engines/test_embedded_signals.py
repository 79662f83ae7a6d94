"""A signal ends a verification by the embedded engine in the middle of a query, without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

QUERIES_UNTIL_A_SIGNAL = """
import sys
from spark_jobs.engines.embedded.engine import LARGE_BYTES, embedded_engine
from spark_jobs.verify import exit_code_of

def program():
    with embedded_engine(LARGE_BYTES) as engine:
        database = engine._database
        database.execute("CREATE TABLE numbers AS SELECT range AS number FROM range(1000000)")
        print("ready", flush=True)
        while True:
            database.execute("SELECT number % 1000 AS key, list(number) FROM numbers GROUP BY ALL")

sys.exit(exit_code_of(program))
"""


@pytest.mark.parametrize(("sent", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_a_query_ends_the_verification(
    sent: signal.Signals, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", QUERIES_UNTIL_A_SIGNAL], stdout=-1, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(sent)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (exit_code, "")
    assert not list(tmp_path.iterdir())
