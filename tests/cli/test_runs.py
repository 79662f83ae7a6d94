"""The command line with real regions: the commands that a person types in one or several terminals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emulator.run.history import HistoryWriter
from emulator.run.history_events import read_events
from tests.cli.test_cli import ROOT, geoemu
from tests.runtimes.fixtures import REGIONS, living, wait_until, write_topology

pytestmark = [pytest.mark.real, pytest.mark.long]

CURRENT = Path(".geoemu") / "current"


def typed(folder: Path, *arguments: str) -> str:
    """Return the output of a command that must succeed."""
    done = geoemu(*arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def states(folder: Path) -> dict[str, str]:
    status = json.loads(typed(folder, "status", "--json"))
    return {region["name"]: region["state"] for region in status["regions"]}


@contextmanager
def in_foreground(folder: Path, *arguments: str, until: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command that does not return, once it has printed a line with `until`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if until in line:
                break
        yield process
    finally:
        process.kill()
        process.communicate()


def rest_of(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=30)[0]


def mentioned(text: str) -> list[str]:
    """Return the command lines of all processes that mention `text`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


def test_a_detached_run_from_up_to_down(folder: Path) -> None:
    printed = typed(folder, "up", "--detach")
    assert "`geoemu down` ends the run" in printed
    status = json.loads(typed(folder, "status", "--json"))
    reports = ["replication_conflicts", "blocked_snapshots", "replication_lag"]
    assert list(status) == ["run", "regions", "links", *reports]
    assert status["run"] == str((folder / CURRENT).resolve())
    assert [region["name"] for region in status["regions"]] == list(REGIONS)
    for region in status["regions"]:
        assert region["state"] == "running"
        assert region["cluster"] == ("europe" if region["name"] == "eu-central" else "americas")
        assert region["service_url"] in printed
        assert region["admin_url"].startswith("http://127.0.0.1:")
        os.kill(region["pid"], 0)
    assert sorted((link["from"], link["to"], link["state"]) for link in status["links"]) == sorted(
        (a, b, "up") for a in REGIONS for b in REGIONS if a != b
    )

    assert typed(folder, "kill", "us-east") == "us-east is killed\n"
    assert typed(folder, "pause", "us-west") == "us-west is paused\n"
    assert typed(folder, "stop", "eu-central") == "eu-central is stopped\n"
    assert states(folder) == {"us-east": "killed", "us-west": "paused", "eu-central": "stopped"}
    assert typed(folder, "start", "us-east") == "us-east is ready\n"
    assert typed(folder, "resume", "us-west") == "us-west is ready again\n"
    assert typed(folder, "restart", "eu-central") == "eu-central is ready again\n"
    assert states(folder) == dict.fromkeys(REGIONS, "running")
    assert "region us-east listens on port" in typed(folder, "logs", "us-east")

    assert typed(folder, "down") == f"the run in {status['run']} has ended\n"
    assert living(folder / CURRENT) == []
    assert states(folder) == dict.fromkeys(REGIONS, "stopped")
    facts = [(e.op, e.region) for e in read_events(folder / CURRENT / "history" / "operator.jsonl")]
    assert facts == [
        *(("kill", "us-east"), ("pause", "us-west"), ("stop", "eu-central")),
        *(("start", "us-east"), ("resume", "us-west"), ("restart", "eu-central")),
    ]


def test_several_regions_and_whole_clusters_at_once(folder: Path) -> None:
    typed(folder, "up", "-d")
    assert sorted(typed(folder, "kill", "us-east", "eu-central").splitlines()) == [
        "eu-central is killed",
        "us-east is killed",
    ]
    typed(folder, "start", "eu-central")
    assert sorted(typed(folder, "lose", "--cluster", "americas").splitlines()) == [
        "us-east is lost; other regions wait for it while replication_clusters name it",
        "us-west is lost; other regions wait for it while replication_clusters name it",
    ]
    assert states(folder) == {"us-east": "lost", "us-west": "lost", "eu-central": "running"}
    for verb in ("kill", "lose"):
        assert typed(folder, verb, "us-east") == "us-east is already lost: nothing was done\n"
    for wrong, said in (
        (["us-west", "us-esat"], "no region 'us-esat' in this run: did you mean us-east?"),
        (["--cluster", "america"], "no cluster 'america' in this run: did you mean americas?"),
        (["us-east", "--cluster", "europe"], "name one or more regions, or --cluster and none"),
        ([], "name one or more regions, or --cluster and none"),
    ):
        refused = geoemu("kill", *wrong, folder=folder)
        assert refused.returncode == 2
        assert said in refused.stderr
    assert states(folder)["eu-central"] == "running"
    facts = [(e.op, e.region) for e in read_events(folder / CURRENT / "history" / "operator.jsonl")]
    assert sorted(facts[-2:]) == [("lose", "us-east"), ("lose", "us-west")]


def test_what_changes_nothing_is_no_fault_of_the_run(folder: Path) -> None:
    typed(folder, "up", "-d")
    typed(folder, "kill", "us-east")
    assert typed(folder, "kill", "us-east") == "us-east is already killed: nothing was done\n"
    refused = geoemu("stop", "us-east", folder=folder)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "us-east is killed and cannot be stopped" in refused.stderr
    typed(folder, "lose", "us-east")
    assert typed(folder, "kill", "us-east") == "us-east is already lost: nothing was done\n"
    assert "all links are up, but none reaches us-east" in typed(folder, "status")
    assert "has ended" in typed(folder, "down")
    for verb in (("kill", "us-west"), ("cut", "us-west", "eu-central"), ("heal",), ("start", "us-east")):
        refused = geoemu(*verb, folder=folder)
        assert refused.returncode == 2
        assert "has ended: start a new one with `geoemu up`" in refused.stderr
    assert "links" not in typed(folder, "status")
    assert "had already ended" in typed(folder, "down")
    facts = [(e.op, e.region) for e in read_events(folder / CURRENT / "history" / "operator.jsonl")]
    assert facts == [("kill", "us-east"), ("lose", "us-east")]


def test_links_are_cut_held_and_healed_and_a_restarted_region_knows(folder: Path) -> None:
    typed(folder, "up", "-d")
    assert typed(folder, "cut", "us-east", "us-west", "--one-way") == "us-east -> us-west is cut\n"
    assert typed(folder, "hold", "us-west", "eu-central") == "us-west <-> eu-central is held\n"
    slowed = typed(folder, "latency", "us-west", "us-east", "250ms", "--jitter", "20ms", "--one-way")
    assert slowed == "us-west -> us-east has a latency of 250 ms\n"
    typed(folder, "restart", "us-west")
    shown = typed(folder, "status")
    for line in (
        "us-west -> us-east is up, latency 250 ms + up to 20 ms",
        "us-east -> us-west is cut",
        "us-west -> eu-central is held",
        "eu-central -> us-west is held",
    ):
        assert line in shown.splitlines()
    assert typed(folder, "heal", "us-west", "eu-central") == "us-west <-> eu-central is up\n"
    assert typed(folder, "heal") == "all links are up\n"
    status = json.loads(typed(folder, "status", "--json"))
    assert {link["state"] for link in status["links"]} == {"up"}
    assert {link["latency_ms"] for link in status["links"]} == {1}
    assert {region["waiting_for"] for region in status["regions"]} == {""}
    typed(folder, "down")


def completed(folder: Path, line: str) -> set[str]:
    words = line.split(" ")
    environment = {"_GEOEMU_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return set(geoemu(folder=folder, environment=environment).stdout.split())


def test_both_regions_report_a_subscription_that_only_one_of_them_replicates(folder: Path) -> None:
    """With the real client, over a link that is down, and until it is turned on."""
    pulsar = pytest.importorskip("pulsar")
    typed(folder, "up", "--detach")
    status = json.loads(typed(folder, "status", "--json"))
    urls = {region["name"]: region["service_url"] for region in status["regions"]}
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    clients = {name: pulsar.Client(url, logger=quiet) for name, url in urls.items()}
    earliest = pulsar.InitialPosition.Earliest
    clients["eu-central"].subscribe("orders", "billing", initial_position=earliest).close()
    consumer = clients["us-east"].subscribe(
        "orders", "billing", initial_position=earliest, replicate_subscription_state_enabled=True
    )
    clients["us-east"].create_producer("orders").send(b"hello")
    consumer.acknowledge(consumer.receive(10_000))
    line = (
        "us-east: subscription persistent://public/default/orders billing: "
        "eu-central does not apply its positions: the subscription is not replicated in eu-central"
    )
    wait_until(lambda: line in typed(folder, "status"), "the conflict is reported")
    typed(folder, "cut", "us-east", "eu-central")
    here = typed(folder, "explain", "subscription", "orders", "billing", "--region", "us-east")
    assert "eu-central does not apply its positions" in here
    assert "eu-central: " not in here
    there = typed(folder, "explain", "subscription", "orders", "billing", "--region", "eu-central")
    assert "positions of us-east are not applied here" in there
    typed(folder, "heal", "us-east", "eu-central")
    target = "/admin/v2/persistent/public/default/orders/subscription/billing/replicatedSubscriptionStatus"
    admin = next(
        one["admin_url"]
        for one in json.loads(typed(folder, "status", "--json"))["regions"]
        if one["name"] == "eu-central"
    )
    turn_on = urllib.request.Request(admin + target, b"true", {"Content-Type": "application/json"})
    urllib.request.urlopen(turn_on).close()
    assert line not in typed(folder, "status")
    explained = json.loads(typed(folder, "explain", "subscription", "orders", "billing", "--json"))["regions"]
    assert [one["why"] for one in explained if "appl" in one["why"]] == []
    for client in clients.values():
        client.close()
    typed(folder, "down")


def test_regions_explain_why_and_a_slip_is_understood(folder: Path) -> None:
    typed(folder, "up", "--detach")
    typed(folder, "cut", "us-east", "eu-central")
    explained = json.loads(
        typed(folder, "explain", "link", "us-east", "eu-central", "--region", "us-east", "--json")
    )
    (answer,) = explained["regions"]
    assert (answer["region"], answer["name"]) == ("us-east", "us-east eu-central")
    assert {"what", "since_ms", "why", "waits_for"} <= answer.keys()
    assert completed(folder, "geoemu explain link us-east ") == {"us-west", "eu-central"}
    text = typed(folder, "explain", "link", "us-east", "us-west")
    assert "us-east: link us-east us-west\n  is         established\n  since " in text
    assert "us-west:" not in text, "a link belongs to the region in which it begins"
    policies = typed(folder, "explain", "metadata", "namespace/public/default")
    assert policies.startswith("us-east, us-west, eu-central: metadata namespace/public%2Fdefault\n")
    typed(folder, "kill", "us-west")
    assert "us-west: it is killed and does not respond" in typed(
        folder, "explain", "link", "us-east", "us-west"
    )
    for words, said in {
        ("lnk", "us-east", "us-west"): "'link'",
        ("link", "us-east"): "the name of a link is REGION REGION",
        ("topic", "orders"): "regions us-east, eu-central have no topic 'orders'",
        ("metadata", "public/default", "--region", "us-east"): "(did you mean 'namespace/public/default'?)",
        ("link", "us-east", "us-wets"): "did you mean 'us-east us-west'",
        ("link", "us-east", "us-west", "--region", "us-esat"): "'us-east'",
    }.items():
        done = geoemu("explain", *words, folder=folder)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert said in done.stderr
    typed(folder, "down")


def test_the_lines_that_up_prints_publish_in_one_region_and_receive_in_another(folder: Path) -> None:
    printed = typed(folder, "up", "-d")
    pasted = printed[printed.index("import pulsar") : printed.index("`geoemu down`")]
    done = subprocess.run([sys.executable, "-c", pasted], capture_output=True, text=True, timeout=60)
    assert "b'hello, world'" in done.stdout, done.stderr
    typed(folder, "down")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_run_in_the_foreground_ends_gracefully_on_a_signal(folder: Path, number: signal.Signals) -> None:
    with in_foreground(folder, "up", until="Ctrl-C ends the run") as up:
        up.send_signal(number)
        assert f"the run in {(folder / CURRENT).resolve()} has ended" in rest_of(up)
        assert up.returncode == 0
    assert living(folder / CURRENT) == []
    assert states(folder) == dict.fromkeys(REGIONS, "stopped")


def test_a_run_in_the_foreground_prints_changes_and_ends_with_down_in_another_terminal(folder: Path) -> None:
    with in_foreground(folder, "up", until="Ctrl-C ends the run") as up:
        typed(folder, "kill", "us-west")
        typed(folder, "down")
        printed = rest_of(up)
        assert "us-west is killed" in printed
        assert up.returncode == 0


def test_nothing_is_left_when_up_is_killed(folder: Path) -> None:
    with in_foreground(folder, "up", until="Ctrl-C ends the run") as up:
        typed(folder, "restart", "us-east")
        assert len(living(folder / CURRENT)) == 3
        up.kill()
    wait_until(lambda: living(folder / CURRENT) == [], "regions end when their owner is gone")
    done = geoemu("start", "us-east", folder=folder)
    assert done.returncode == 2
    assert "has ended, and so have its regions: start a new run with `geoemu up`" in done.stderr


def test_a_port_in_use_is_named_and_nothing_starts(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        write_topology(folder, us_west_admin_port=port)
        done = geoemu("up", folder=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"port {port} is in use" in done.stderr
    assert "`admin_port` of region us-west" in done.stderr
    assert not (folder / CURRENT).exists()


def test_a_second_run_in_a_folder_needs_a_directory_of_its_own(folder: Path) -> None:
    typed(folder, "up", "-d")
    refused = geoemu("up", "-d", folder=folder)
    assert refused.returncode == 2
    assert "a run is up in this folder already" in refused.stderr
    typed(folder, "up", "-d", "--run-dir", "second")
    assert typed(folder, "kill", "us-east", "--run-dir", "second") == "us-east is killed\n"
    assert states(folder)["us-east"] == "running"
    typed(folder, "down", "--run-dir", "second")
    typed(folder, "down")
    assert living(folder / "second") == living(folder / CURRENT) == []


SCENARIO = """
name: example
topic: persistent://public/default/orders
actors:
  producers: [{name: orders, region: us-east, rate_per_second: 100, messages: 50}]
  consumers: [{name: billing, region: eu-central, subscription: billing}]
steps:
  - begin: billing
  - begin: orders
  - wait_until: {consumer: billing, received: 50, within: 20s}
  - finish: orders
  - drain: {within: 20s}
"""


def test_a_scenario_ends_with_the_verdict_as_exit_code_and_as_json(folder: Path) -> None:
    (folder / "example.yaml").write_text(SCENARIO)
    done = geoemu("run", "example.yaml", "--json", "--report", "report", folder=folder)
    report = json.loads(done.stdout)
    assert report["verdict"] == "valid", done.stdout
    assert done.returncode == 0
    assert "completed in" in done.stderr
    assert json.loads((folder / "report" / "report.json").read_text())["verdict"] == "valid"
    assert living(folder / CURRENT) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_nothing_is_left_of_a_scenario_that_is_ended(folder: Path, number: signal.Signals) -> None:
    (folder / "example.yaml").write_text(SCENARIO.replace("messages: 50", "messages: 100000"))
    with in_foreground(folder, "run", "example.yaml", until="begin: orders") as run:
        run.send_signal(number)
        printed = rest_of(run)
    if number == signal.SIGTERM:
        assert run.returncode == 130
        assert "all regions and actors have stopped" in printed
        assert mentioned(str(folder)) == []
    assert (folder / CURRENT / "run.json").exists()
    wait_until(lambda: living(folder / CURRENT) == [], "regions end by themselves")
    # Each notices when a pipe closes, also a Spark that is just starting.
    wait_until(lambda: mentioned(str(folder)) == [], "actors and Spark end by themselves")


def test_seal_reports_the_state_of_each_history(folder: Path) -> None:
    typed(folder, "up", "--detach")
    history = folder / CURRENT / "history" / "shop.jsonl"
    writer = HistoryWriter(history, "shop")
    assert "still running" in geoemu("seal", "shop", folder=folder).stderr
    writer.abandon()
    assert typed(folder, "seal", "shop") == "shop is sealed\n"
    assert typed(folder, "seal", "shop") == "shop was already sealed or complete\n"
    refused = geoemu("seal", "shop", "shopp", folder=folder)
    assert (refused.returncode, "(there are: shop)" in refused.stderr) == (2, True)
    typed(folder, "down")


def test_a_tap_records_its_clients_until_it_is_interrupted(folder: Path) -> None:
    typed(folder, "up", "--detach")
    with in_foreground(folder, "tap", until="are recorded in") as tap:
        again = geoemu("tap", folder=folder)
        assert (again.returncode, "--name" in again.stderr) == (2, True)
        tap.send_signal(signal.SIGINT)
        assert tap.wait(20) == 0
    last = (folder / CURRENT / "history" / "wire.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["op"] == "end"
    typed(folder, "down")
    assert "has ended" in geoemu("tap", folder=folder).stderr
