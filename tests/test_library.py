"""`geoemu.up` and what it returns: as a test of a user's own service would use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulsar  # type: ignore[import-untyped]
import pytest

import geoemu
from emulator.run.history_events import read_events
from geoemu.faults import Faults
from tests.runtimes.fixtures import end_all, living, wait_until, write_topology

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[1]
GEOEMU = Path(sys.executable).with_name("geoemu")
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    write_topology(tmp_path)
    yield tmp_path
    end_all(tmp_path / "run")


def test_a_drill_in_a_few_lines_ends_with_its_verdict(folder: Path) -> None:
    with geoemu.up(folder / "topology.yaml", run_dir=folder / "run") as geo:
        assert geo.regions == ("us-east", "us-west", "eu-central")
        client = geo.recorded(pulsar.Client(geo.url("us-east"), logger=QUIET), actor="shop")
        consumer = client.subscribe("orders", "billing", initial_position=pulsar.InitialPosition.Earliest)
        client.create_producer("orders").send(b"one")
        assert geo.backlog("us-east", "orders", "billing") == 1
        consumer.acknowledge(consumer.receive(10_000))
        geo.latency("us-east", "eu-central", "5ms", one_way=True)
        geo.kill("us-west", "eu-central")
        assert geo.state("eu-central") == "killed"
        with pytest.raises(geoemu.RuntimeFailure, match="is killed after"):
            geo.drain(within="100ms")
        geo.start("us-west", "eu-central")
        geo.heal()
        geo.drain()
        verdict = geo.verify(expect="outage<=60s", engine="embedded")
    assert verdict.is_valid, str(verdict)
    assert verdict.finding("INV-5").outcome == "valid"
    assert verdict.figures["published"]["acknowledged"] == 1
    assert verdict.report.is_file()
    assert not verdict.broken
    done = [event.op for event in read_events(folder / "run" / "history" / "operator.jsonl")]
    assert sorted(done) == ["heal", "kill", "kill", "latency", "start", "start"]
    assert living(folder / "run") == []


def test_a_program_and_a_command_wait_for_states_of_a_region(folder: Path) -> None:
    exclusive = pulsar.ProducerAccessMode.Exclusive
    with (
        geoemu.up(folder / "topology.yaml", run_dir=folder / "run") as geo,
        ThreadPoolExecutor(101) as pool,
    ):
        waiting = [pool.submit(geo.await_state, "us-east", takeover=1 + one % 2) for one in range(100)]
        words = ("await", "us-east", "takeover_more=1", "--topic", "orders", "--run-dir", str(folder / "run"))
        command = pool.submit(subprocess.run, [GEOEMU, *words], capture_output=True, text=True)
        client = pulsar.Client(geo.url("us-east"), logger=QUIET)
        count = 0
        while not command.done():
            client.create_producer("orders", access_mode=exclusive).close()
            count += 1
        assert [one.result() for one in waiting if not 1 <= one.result() <= count] == []
        orders = "persistent://public/default/orders"
        assert command.result().stdout == f"us-east reached takeover_more 1 of {orders}: 1 counted\n"
        assert geo.await_state("us-east", takeover=count, topic="orders", within="1s") == count

        with pytest.raises(
            geoemu.RuntimeFailure, match=rf"takeover is {count} of 999 in us-east after 0.3 s"
        ):
            geo.await_state("us-east", takeover=999, within="300ms")
        for wrong in ({}, {"takeover": 0}, {"takeovers": 1}, {"takeover": 1, "update_sent": 1}):
            with pytest.raises(ValueError, match="takeover"):
                geo.await_state("us-east", **wrong)
        with pytest.raises(geoemu.GeoemuError, match="did you mean us-east"):
            geo.await_state("us-eats", takeover=1)

        killed = pool.submit(geo.await_state, "us-east", takeover=count + 1, within="3s")
        geo.kill("us-east")
        with pytest.raises(
            geoemu.RuntimeFailure, match=r"takeover is \d+ of \d+ in us-east \(killed\) after 3 s"
        ):
            killed.result()
        returning = pool.submit(geo.await_state, "us-east", takeover_more=1)
        geo.start("us-east")
        client.create_producer("orders", access_mode=exclusive).close()
        assert returning.result() == 1, "a region counts from zero after its start"


def test_a_program_waits_for_conditions_of_all_regions(folder: Path) -> None:
    with geoemu.up(folder / "topology.yaml", run_dir=folder / "run") as geo:
        client = pulsar.Client(geo.url("us-east"), logger=QUIET)
        consumer = client.subscribe(
            "orders",
            "billing",
            initial_position=pulsar.InitialPosition.Earliest,
            replicate_subscription_state_enabled=True,
        )
        producer = client.create_producer("orders")
        for _ in range(20):
            producer.send(b"x")
            consumer.acknowledge(consumer.receive(10_000))
        geo.await_replicated("orders", "billing")
        assert geo.backlog("eu-central", "orders", "billing") == 0
        geo.await_snapshot("orders")
        geo.await_quiet()
        command = [GEOEMU, "await", "quiet", "orders", "--run-dir", str(folder / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "quiet orders: reached\n"
        client.close()
        geo.kill("us-west")
        with pytest.raises(
            geoemu.RuntimeFailure, match=r"quiet is not reached: us-west is killed; .*link to us-west"
        ):
            geo.await_quiet(within="100ms")
        failed = subprocess.run([*command, "--timeout", "100ms"], capture_output=True, text=True)
        assert failed.returncode == 1
        assert "us-west is killed" in failed.stderr
        status = subprocess.run(
            [GEOEMU, "status", "--run-dir", str(folder / "run")], capture_output=True, text=True, check=True
        )
        assert "us-east: us-west prevents snapshots of 1 topic" in status.stdout
        geo.start("us-west")
        geo.await_quiet()
        with pytest.raises(ValueError, match="requires a topic"):
            geo.await_quiet(None, "billing")
        with pytest.raises(geoemu.RuntimeFailure, match="no region has topic"):
            geo.await_replicated("ordres")


def test_an_exception_ends_everything_and_stays_what_it_was(folder: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        geoemu.up(folder / "topology.yaml", run_dir=folder / "run"),
    ):
        1 / 0  # noqa: B018
    assert living(folder / "run") == []


async def test_the_library_works_inside_a_running_event_loop_and_suggests_names(folder: Path) -> None:
    with geoemu.up(folder / "topology.yaml", run_dir=folder / "run") as geo:
        assert geoemu.attach(folder / "run").url("us-west") == geo.url("us-west")
        with pytest.raises(geoemu.GeoemuError, match="did you mean us-east"):
            geo.kill("us-eats")
        with pytest.raises(TypeError):
            geo.kill()
        told = geo.environment("us-west", actor="shop")
        assert told["GEOEMU_SERVICE_URL"] == told["GEOEMU_SERVICE_URL_US_WEST"] == geo.url("us-west")


@pytest.mark.parametrize("ends", [("us-east", None), (None, "us-east")])
def test_healing_the_links_of_one_region_is_refused_and_changes_nothing(
    ends: tuple[str | None, str | None],
) -> None:
    calls: list[str] = []

    class NoRuntime:
        def __getattr__(self, name: str) -> object:
            calls.append(name)
            raise AssertionError(name)

    with pytest.raises(TypeError, match="'us-east': heal requires two ends of a link, or none for all links"):
        Faults(NoRuntime()).heal(*ends)  # type: ignore[arg-type]
    assert calls == []


def test_what_is_wrong_with_a_topology_is_raised_before_anything_starts(folder: Path) -> None:
    (folder / "topology.yaml").write_text("nonsense: true\n")
    with pytest.raises(geoemu.ConfigurationError, match="nonsense"):
        geoemu.up(folder / "topology.yaml", run_dir=folder / "run")


@pytest.mark.parametrize("when", ["starting", "up"])
def test_ctrl_c_leaves_nothing_behind(folder: Path, when: str) -> None:
    program = (
        "import sys, time, geoemu\n"
        "print('starting', flush=True)\n"
        "with geoemu.up(sys.argv[1], run_dir=sys.argv[2]):\n"
        "    print('up', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder / "topology.yaml"), str(folder / "run")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line == f"{when}\n":
            break
    if when == "starting":
        # Earlier, Python may be creating its event loop, and prints an error of its own.
        wait_until(lambda: (folder / "run" / "run.json").exists(), "a run is made")
        wait_until(lambda: bool(living(folder / "run")), "a region is started")
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=30)
    assert complaints.splitlines()[-1] == "KeyboardInterrupt"
    # A region that was being started at that moment is not known yet: it exits because its owner is gone.
    wait_until(lambda: living(folder / "run") == [], "its regions end")


def test_a_service_that_is_recorded_loads_no_more_than_it_needs() -> None:
    heavy = ["pydantic", "typer", "yaml", "pyspark", "pyarrow", "rich"]
    program = f"import sys, geoemu; geoemu.recorded; print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_fail_over_plan_predicts_what_the_verdict_counts(folder: Path) -> None:
    """A plan of three processes, with the source and after its kill -9, kept in the verdict."""
    with geoemu.up(folder / "topology.yaml", run_dir=folder / "run") as geo:
        client = geo.recorded(pulsar.Client(geo.url("us-east"), logger=QUIET), actor="shop")
        subscribing = {
            "consumer_type": pulsar.ConsumerType.Shared,
            "initial_position": pulsar.InitialPosition.Earliest,
            "replicate_subscription_state_enabled": True,
        }
        consumer = client.subscribe("orders", "billing", **subscribing)
        producer = client.create_producer("orders")
        for number in range(10):
            producer.send(b"%d" % number)
            consumer.acknowledge(consumer.receive(10_000))
        geo.await_replicated("orders", "billing")
        for number in range(10, 30):
            producer.send(b"%d" % number)
        messages = [consumer.receive(10_000) for _ in range(20)]
        for message in messages[1:]:
            consumer.acknowledge(message)
        geo.await_quiet("orders", within="30s")
        plan = geo.failover_plan("orders", "billing", from_="us-east", to="eu-central")
        assert (plan.exact, plan.skipped_messages, plan.missing_messages) == (True, 0, 0)
        assert plan.redelivered_messages == 19
        last = messages[-1].message_id()
        position = f"{last.ledger_id()}:{last.entry_id()}"
        there = geo.translate("orders", position, from_="us-east", to="eu-central")
        assert there.exact is not None
        assert geo.translate("orders", there.exact, from_="eu-central", to="us-east").exact == position
        client.close()
        geo.kill("us-east")
        alone = geo.failover_plan("orders", "billing", from_="us-east", to="eu-central")
        assert not alone.exact
        assert alone.redelivered_messages >= plan.redelivered_messages
        assert alone.information_age_ms is not None
        far = geo.recorded(pulsar.Client(geo.url("eu-central"), logger=QUIET), actor="far")
        consumer = far.subscribe("orders", "billing", **subscribing)
        for _ in range(plan.redelivered_messages + 1):
            consumer.acknowledge(consumer.receive(10_000))
        far.close()
        geo.start("us-east")
        geo.drain("30s")
        verdict = geo.verify(engine="embedded")
    assert verdict.is_valid, str(verdict)
    assert verdict.finding("INV-125").outcome == "valid"
    assert "2 plans compared" in verdict.finding("INV-125").sentence


def test_a_removed_region_is_left_out_of_all_topics_and_refused(folder: Path) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [GEOEMU, "region", "remove", *arguments, "--run-dir", str(folder / "run")],
            input="n\n",
            capture_output=True,
            text=True,
            timeout=60,
        )

    with geoemu.up(folder / "topology.yaml", run_dir=folder / "run") as geo:
        client = pulsar.Client(geo.url("us-east"), logger=QUIET)
        producer = client.create_producer("orders")
        producer.send(b"one")
        geo.await_replicated("orders")
        refused = command("us-west", "--yes")
        assert refused.returncode == 2
        assert "a region that works is not removed" in refused.stderr
        geo.lose("us-west")
        declined = command("us-west")
        assert declined.returncode == 1
        assert "us-west" in declined.stdout, "what may be lost is printed before the question"
        producer.send(b"two")
        assert geo.remove_region("us-west").region == "us-west"
        geo.await_replicated("orders")
        again = command("us-west", "--yes", "--json")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["policies"] == [], "no policy names it any more"
        client.close()
    assert living(folder / "run") == []


def test_a_program_reads_why_something_is_as_it_is(folder: Path) -> None:
    with geoemu.up(folder / "topology.yaml", run_dir=folder / "run") as geo:
        found = geo.explain("link", "us-east", "eu-central")
        assert [(one.region, one.what, one.why) for one in found.values()] == [("us-east", "established", "")]
        geo.kill("eu-central")
        wait_until(lambda: bool(geo.explain("link", "us-east", "eu-central")["us-east"].why), "a reason")
        with pytest.raises(geoemu.RuntimeFailure, match="region eu-central: it is killed"):
            geo.explain("link", "eu-central", "us-east", region="eu-central")
        with pytest.raises(geoemu.ConfigurationError, match="is not a kind"):
            geo.explain("lnik", "us-east", "us-west")
        with pytest.raises(geoemu.ConfigurationError, match="no such region"):
            geo.explain("link", "us-east", "us-west", region="mars")
