"""`--curl` prints the requests of a command as shell commands; and regions that log JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.cli.curl import CurlRequest, as_curl
from emulator.config.region import RegionConfig
from emulator.net.tls import Certificates
from emulator.run.history_events import read_events
from tests.cli.test_cli import ROOT
from tests.cli.test_runs import CURRENT, geoemu, typed
from tests.runtimes.fixtures import wait_until, write_topology


def test_a_request_is_printed_as_one_shell_command() -> None:
    url = "http://127.0.0.1:8080"
    tls = Certificates("ca.pem", "app.pem", "app.key")
    assert as_curl(url, CurlRequest("GET", "/"), tls).startswith(
        "curl --silent --show-error --cacert ca.pem --cert app.pem --key app.key "
    )
    assert as_curl(url, CurlRequest("GET", "/a?b=c")) == f"curl --silent --show-error '{url}/a?b=c'"
    assert as_curl(url, CurlRequest("PUT", "/clock", {"ahead_ms": -2})) == (
        "curl --silent --show-error --request PUT --header 'content-type: application/json' "
        f"""--data '{{"ahead_ms": -2}}' {url}/clock"""
    )


def test_regions_in_containers_get_the_log_format(tmp_path: Path) -> None:
    """Regions in containers get the same log format as regions that are processes."""
    write_topology(tmp_path)
    typed(tmp_path, "render", "--output", "containers", "--log-format", "json")
    configs = [
        RegionConfig.load(path) for path in (tmp_path / "containers" / "regions").glob("*/region.json")
    ]
    assert [one.log_format for one in configs] == ["json"] * 3


def test_a_region_refuses_an_unknown_log_format(tmp_path: Path) -> None:
    path = tmp_path / "region.json"
    path.write_text(RegionConfig("us", "americas", log_format="xml").to_json())
    program = [sys.executable, "-m", "emulator.broker", str(path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "geoemu: 'xml' is none of text, json\n")


def done_by_shell(printed: str) -> list[str]:
    """Return the output of each printed command."""
    return [
        subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout
        for line in printed.splitlines()
    ]


@pytest.mark.real
@pytest.mark.long
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_printed_curl_command_has_the_effect_of_the_verb_and_regions_print_json_on_request(
    folder: Path,
) -> None:
    typed(folder, "up", "--detach", "--log-format", "json")
    answers = [json.loads(one) for one in done_by_shell(typed(folder, "status", "--curl"))]
    assert [one["ready"] for one in answers[:3]] == [True, True, True]
    assert answers[3:] == 9 * [[]], "replication conflicts, blocked snapshots and lag of each region"

    skew = geoemu("skew", "us-east", "-2s", "--curl", folder=folder)
    assert "not recorded in the run's history" in skew.stderr
    ask_clock = skew.stdout[skew.stdout.index("http") :]
    before = json.loads(done_by_shell(f"curl -s {ask_clock}")[0])
    assert before["ahead_ms"] == 0, "printing it did nothing"
    assert done_by_shell(skew.stdout) == [""]
    assert json.loads(done_by_shell(f"curl -s {ask_clock}")[0])["ahead_ms"] == -2_000
    cut = geoemu("cut", "us-east", "eu-central", "--curl", folder=folder)
    assert len(done_by_shell(cut.stdout)) == 4, "two directions, two ends"
    ask_link = typed(folder, "explain", "link", "us-east", "eu-central", "--region", "us-east", "--curl")
    wait_until(
        lambda: json.loads(done_by_shell(ask_link)[0])["what"] != "established", "the link is no longer there"
    )
    assert set(done_by_shell(geoemu("heal", "--curl", folder=folder).stdout)) == {""}
    wait_until(
        lambda: json.loads(done_by_shell(ask_link)[0])["what"] == "established", "the link is there again"
    )
    none = geoemu("hold", "us-east", "us-east", "--curl", folder=folder)
    assert (none.returncode, "no link us-east -> us-east" in none.stderr) == (2, True)
    operator = folder / CURRENT / "history" / "operator.jsonl"
    assert not operator.exists() or list(read_events(operator)) == []

    printed = typed(folder, "transactions", "list-transaction-keys", "us-east", "--curl")
    assert [json.loads(one) for one in done_by_shell(printed)] == [[]]
    refused = geoemu("explain", "colour", "red", "--curl", folder=folder)
    assert (refused.returncode, "is not a kind" in refused.stderr) == (2, True)

    typed(folder, "restart", "us-west")
    lines = typed(folder, "logs", "us-west").splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert len([one for one in events if "listens on port" in one]) == 2, "after a restart, too"
    typed(folder, "down")
