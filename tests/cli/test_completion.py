"""Completion in the shell: what is offered, how long it takes, and that no error appears in the typed line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from emulator.cli.completion import QUERY_SECONDS
from emulator.run.directory import RunDirectory
from tests.cli.test_cli import ROOT, geoemu
from tests.runtimes.fixtures import small_topology
from tests.runtimes.test_run_directory import new_run

NAMES = {
    "topic": ["persistent://public/default/orders", "persistent://public/other/orders"],
    "subscription": ["persistent://public/default/orders billing", "persistent://public/other/orders stock"],
}
SLOW = ["yaml", "pyspark", "pyarrow", "duckdb", "pulsar"]


def offered(folder: Path, line: str) -> set[str]:
    """Return the completions of a line, which may print nothing else and must succeed."""
    words = line.split(" ")
    done = geoemu(
        folder=folder,
        environment={
            "_GEOEMU_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
    )
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


class Region(BaseHTTPRequestHandler):
    """Answers as a region does when it is asked for the names of its objects."""

    def do_GET(self) -> None:
        names = NAMES.get(self.path.rpartition("/")[2], [])
        body = json.dumps(names).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    """Yield a run in which one region answers, one accepts connections and stays silent, and one is down."""
    directory = new_run(small_topology(tmp_path / "files"), None, tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Region)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with directory.edit() as record:
            record.regions["us-east"].admin_port = server.server_port
            record.regions["us-west"].admin_port = silent.getsockname()[1]
        yield directory
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("geoemu failover-plan ", {"orders", "public/other/orders"}),
        ("geoemu failover-plan or", {"orders"}),
        ("geoemu failover-plan persistent://public/o", {"persistent://public/other/orders"}),
        ("geoemu failover-plan orders ", {"billing"}),
        ("geoemu failover-plan public/other/orders ", {"stock"}),
        ("geoemu failover-plan orders billing --from us-east --to us", {"us-west"}),
        ("geoemu translate pub", {"public/other/orders"}),
        ("geoemu await us-east --topic o", {"orders"}),
        ("geoemu await quiet o", {"orders"}),
        ("geoemu await quiet orders ", {"billing"}),
        ("geoemu explain subscription orders b", {"billing"}),
        ("geoemu pulsar-admin us", {"us-east", "us-west"}),
        ("geoemu transactions list-transaction-keys eu", {"eu-central"}),
        ("geoemu env us-w", {"us-west"}),
        ("geoemu lose --cluster am", {"americas"}),
    ],
)
def test_names_of_the_run_are_offered(
    run: RunDirectory, tmp_path: Path, line: str, expected: set[str]
) -> None:
    assert offered(tmp_path, line) == expected


def test_scenarios_and_files_are_offered(tmp_path: Path) -> None:
    for name in ("region-mine.yaml", "region.txt", ".hidden.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "regions").mkdir()
    (tmp_path / "regions" / "one.yml").touch()
    shipped = {"region-failback", "region-failover", "region-lost", "region-removed"}
    assert offered(tmp_path, "geoemu run region") == shipped | {"region-mine.yaml", "regions/"}
    assert offered(tmp_path, "geoemu simulate regions/") == {"regions/one.yml"}
    assert offered(tmp_path, "geoemu run .h") == {".hidden.yaml"}
    assert offered(tmp_path, "geoemu chaos --workload built") == {"built-in"}
    assert ".hidden.yaml" not in offered(tmp_path, "geoemu run ")
    assert offered(tmp_path, "geoemu run nowhere/") == set()


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 4}', '{"version": 3}', None])
def test_a_damaged_run_offers_nothing_and_prints_no_error(
    run: RunDirectory, tmp_path: Path, content: str | None
) -> None:
    file = run.path / "run.json"
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    assert offered(tmp_path, "geoemu kill us") == set()
    assert offered(tmp_path, "geoemu failover-plan o") == set()


def test_a_region_with_nonsense_offers_nothing(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NAMES, "topic", {"not": ["a list of names", 1]})
    assert offered(tmp_path, "geoemu failover-plan o") == set()


@pytest.mark.parametrize("line", ["geoemu kill us", "geoemu run reg", "geoemu failover-plan o"])
def test_a_completion_loads_nothing_that_takes_long(run: RunDirectory, tmp_path: Path, line: str) -> None:
    """Each of these takes longer to load than a completion may take. Typer itself loads Pydantic."""
    program = (
        "import sys\n"
        "from emulator.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        f"    print(*[name for name in {SLOW} if name in sys.modules], file=open('loaded', 'w'))\n"
    )
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_GEOEMU_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()
    assert (tmp_path / "loaded").read_text() == "\n"


def test_silent_regions_are_waited_for_once(run: RunDirectory) -> None:
    """The time limit is for all regions together, not for each."""
    program = (
        "import asyncio, sys, time\n"
        "from pathlib import Path\n"
        "from emulator.cli.completion import _names\n"
        "from emulator.run.directory import RunDirectory\n"
        "import emulator.runtimes.admin_client\n"
        "silent = RunDirectory(Path(sys.argv[1])).read().regions['us-west']\n"
        "began = time.monotonic()\n"
        "assert asyncio.run(_names([silent] * 20, 'topic')) == []\n"
        "print(time.monotonic() - began)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(run.path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert QUERY_SECONDS <= float(done.stdout) < 20 * QUERY_SECONDS
