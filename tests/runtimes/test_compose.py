"""Regions as containers: a real engine, real Pulsar clients. One run, which every test leaves unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from emulator.errors import Refused, RuntimeFailure
from emulator.run.directory import RunDirectory
from emulator.runtimes.compose.command import compose, compose_command
from emulator.runtimes.compose.file import REGION_LABEL
from emulator.runtimes.compose.run_files import render
from emulator.runtimes.compose.runtime import ComposeRuntime
from emulator.runtimes.contract import RunStatus
from emulator.runtimes.docker_engine import Container
from emulator.runtimes.image_sources import SOURCES_LABEL
from emulator.runtimes.opening import open_run

from .containers import need_containers, remove
from .fixtures import REGIONS, begin, heal, small_topology

pytestmark = [pytest.mark.real, pytest.mark.long]

DEADLINE_SECONDS = 60
RECEIVE_MS = 10_000
TOPIC = "persistent://public/default/{}"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need_containers("region")
    folder = tmp_path_factory.mktemp("compose")
    run_dir = folder / "run"
    try:
        runtime = ComposeRuntime.create(small_topology(folder), run_dir, detached=True)
        asyncio.run(asyncio.wait_for(runtime.up(), DEADLINE_SECONDS))
        yield run_dir
    finally:
        asyncio.run(remove(run_dir))


@pytest.fixture
def run(run_dir: Path) -> ComposeRuntime:
    """The run, as another terminal sees it."""
    runtime = open_run(run_dir)
    assert isinstance(runtime, ComposeRuntime)
    return runtime


def complete(scenario: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(scenario, DEADLINE_SECONDS))


def states(status: RunStatus) -> dict[str, str]:
    return {region.name: region.state for region in status.regions}


async def container(run: ComposeRuntime, region: str) -> Container:
    return (await run._containers.engine.containers(run._containers._run_label, REGION_LABEL))[region]


@contextlib.contextmanager
def client(run: ComposeRuntime, region: str) -> Iterator[pulsar.Client]:
    """A real client on the host."""
    status = complete(run.status())
    url = next(r.service_url for r in status.regions if r.name == region)
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    made = pulsar.Client(url, operation_timeout_seconds=20, logger=logger)
    try:
        yield made
    finally:
        made.close()


def publish(run: ComposeRuntime, region: str, topic: str, *texts: str) -> None:
    with client(run, region) as there:
        producer = there.create_producer(TOPIC.format(topic))
        for text in texts:
            producer.send(text.encode())


def received(run: ComposeRuntime, region: str, topic: str, count: int) -> list[str]:
    """Return the first messages of a topic, in order."""
    with client(run, region) as there:
        reader = there.create_reader(TOPIC.format(topic), pulsar.MessageId.earliest)
        return [reader.read_next(timeout_millis=RECEIVE_MS).data().decode() for _ in range(count)]


def test_it_is_up_and_everything_is_linked(run: ComposeRuntime) -> None:
    status = complete(run.status())
    assert status.runtime == "compose"
    assert states(status) == dict.fromkeys(REGIONS, "running")
    assert {link.state for link in status.links} == {"up"}
    assert all(region.waiting_for == "" and region.pid for region in status.regions)


def test_what_is_published_in_one_region_is_received_in_another(run: ComposeRuntime) -> None:
    publish(run, "us-east", "orders", "1", "2", "3")
    assert received(run, "eu-central", "orders", 3) == ["1", "2", "3"]


def test_a_killed_region_is_seen_to_be_and_comes_back_with_what_it_had(run: ComposeRuntime) -> None:
    publish(run, "us-west", "kept", "before")
    complete(run.kill("us-west"))
    status = complete(run.status())
    assert states(status) == {"us-east": "running", "us-west": "killed", "eu-central": "running"}
    assert [region.pid for region in status.regions if region.name == "us-west"] == [None]
    publish(run, "us-east", "kept", "meanwhile")
    complete(run.start("us-west"))
    assert states(complete(run.status())) == dict.fromkeys(REGIONS, "running")
    assert received(run, "us-west", "kept", 2) == ["before", "meanwhile"]


@pytest.mark.within(DEADLINE_SECONDS)
async def test_changes_made_by_hand_are_noticed(run: ComposeRuntime) -> None:
    us_east = await container(run, "us-east")
    for verb, state in (("pause", "paused"), ("unpause", "running"), ("kill", "killed")):
        subprocess.run(["docker", verb, us_east.name], check=True, capture_output=True)
        while states(await run.status())["us-east"] != state:
            await asyncio.sleep(0.05)
    subprocess.run(["docker", "rm", us_east.name], check=True, capture_output=True)
    assert states(await run.status())["us-east"] == "killed"
    await run.start("us-east")  # a new container on the same log
    assert (await container(run, "us-east")).id != us_east.id
    subprocess.run(["docker", "stop", us_east.name], check=True, capture_output=True)
    assert states(await run.status())["us-east"] == "stopped"
    await run.start("us-east")
    assert states(await run.status()) == dict.fromkeys(REGIONS, "running")


@pytest.mark.within(DEADLINE_SECONDS)
async def test_a_container_run_beside_a_region_is_not_the_region(run: ComposeRuntime) -> None:
    """`docker compose run` gives another container the labels of the region's own."""
    beside = ["run", "--detach", "--no-deps", "--entrypoint", "sleep", "us-west", "600"]

    made = subprocess.run(
        [*compose_command(), "--progress", "quiet", *beside],
        cwd=run.run_dir,
        check=True,
        capture_output=True,
        text=True,
    )
    own = await container(run, "us-west")
    subprocess.run(["docker", "rm", "--force", own.name], check=True, capture_output=True)
    try:
        assert states(await run.status())["us-west"] == "killed"
        await run.start("us-west")
        assert states(await run.status())["us-west"] == "running"
    finally:
        subprocess.run(["docker", "rm", "--force", made.stdout.strip()], check=True, capture_output=True)


def test_a_link_that_is_cut_one_way_lets_nothing_pass_that_way_until_it_is_healed(
    run: ComposeRuntime,
) -> None:
    complete(begin(run, "cut", "us-east", "eu-central", one_way=True))
    cut = [(link.source, link.target) for link in complete(run.status()).links if link.state == "cut"]
    assert cut == [("us-east", "eu-central")]
    publish(run, "us-east", "cut", "east")
    publish(run, "eu-central", "cut", "europe")
    assert sorted(received(run, "us-west", "cut", 2)) == ["east", "europe"]
    with client(run, "eu-central") as europe:
        reader = europe.create_reader(TOPIC.format("cut"), pulsar.MessageId.earliest)
        assert reader.read_next(timeout_millis=RECEIVE_MS).data() == b"europe"
        with pytest.raises(pulsar.Timeout):
            reader.read_next(timeout_millis=300)
        complete(heal(run, "us-east", "eu-central"))
        assert reader.read_next(timeout_millis=RECEIVE_MS).data() == b"east"
    assert {link.state for link in complete(run.status()).links} == {"up"}


def test_a_message_takes_at_least_the_latency_that_its_link_was_given(run: ComposeRuntime) -> None:
    complete(begin(run, "latency", "us-east", "us-west", latency_ms=700, jitter_ms=0, one_way=True))
    with client(run, "us-west") as west:
        reader = west.create_reader(TOPIC.format("slow"), pulsar.MessageId.earliest)
        began = time.monotonic()
        publish(run, "us-east", "slow", "snail")
        assert reader.read_next(timeout_millis=RECEIVE_MS).data() == b"snail"
        assert time.monotonic() - began >= 0.7
    complete(heal(run, "us-east", "us-west"))
    assert all(link.shape == link.declared for link in complete(run.status()).links)


def test_messages_that_a_link_loses_arrive_once_and_in_order(run: ComposeRuntime) -> None:
    topic = "lost"
    publish(run, "us-east", topic, "0")
    with client(run, "us-west") as west:
        reader = west.create_reader(TOPIC.format(topic), pulsar.MessageId.earliest)
        assert reader.read_next(timeout_millis=RECEIVE_MS).data() == b"0"
        complete(begin(run, "drop", "us-east", "us-west", one_way=True, what="send"))
        complete(begin(run, "drop", "us-west", "us-east", one_way=True, what="send_receipt"))
        for number in range(1, 4):
            publish(run, "us-east", topic, str(number))
        assert [reader.read_next(timeout_millis=RECEIVE_MS).data() for _ in range(3)] == [b"1", b"2", b"3"]
        complete(run.heal())
        assert not reader.has_message_available()


def test_a_link_that_was_cut_while_a_region_was_down_is_cut_when_it_comes_back(run: ComposeRuntime) -> None:
    complete(run.kill("us-west"))
    complete(begin(run, "cut", "us-east", "us-west"))
    complete(run.start("us-west"))
    publish(run, "us-west", "cut-while-down", "west")
    with client(run, "us-east") as east:
        reader = east.create_reader(TOPIC.format("cut-while-down"), pulsar.MessageId.earliest)
        with pytest.raises(pulsar.Timeout):
            reader.read_next(timeout_millis=300)
        complete(run.heal())
        assert reader.read_next(timeout_millis=RECEIVE_MS).data() == b"west"


def test_a_paused_region_is_seen_to_be_and_goes_on(run: ComposeRuntime) -> None:
    complete(run.pause("us-east"))
    assert states(complete(run.status()))["us-east"] == "paused"
    with pytest.raises(RuntimeFailure, match="us-east is paused: `geoemu resume us-east`"):
        complete(run.start("us-east"))
    complete(run.resume("us-east"))
    publish(run, "us-east", "paused", "awake")
    assert received(run, "us-west", "paused", 1) == ["awake"]


@pytest.mark.within(DEADLINE_SECONDS)
async def test_every_verb_may_come_twice(run: ComposeRuntime) -> None:
    for verb in (run.pause, run.resume, run.kill, run.start, run.pause, run.kill, run.start, run.stop):
        await verb("us-east")
        await verb("us-east")
    await run.kill("us-east")
    assert states(await run.status())["us-east"] == "stopped", "there was nothing to kill"
    await run.start("us-east")


IN_A_CONTAINER = """
import asyncio
from emulator.client import Client, InitialPosition

async def main():
    async with Client("pulsar://us-east:6650") as here, Client("pulsar://eu-central:6650") as there:
        producer = await here.producer("persistent://public/default/inside")
        await producer.send(b"hello")
        consumer = await there.subscribe(
            "persistent://public/default/inside", "me", initial_position=InitialPosition.EARLIEST
        )
        print((await asyncio.wait_for(consumer.receive(), 10)).payload.decode())

asyncio.run(main())
"""


def test_a_client_in_a_container_reaches_regions_by_name_while_others_come_from_the_host(
    run: ComposeRuntime,
) -> None:
    network = run._containers._run_label.partition("=")[2]
    command = [
        "docker",
        "run",
        "--rm",
        "--network",
        network,
        "--entrypoint",
        "python3",
        "geoemu-region:local",
    ]
    done = subprocess.run([*command, "-c", IN_A_CONTAINER], capture_output=True, text=True, timeout=30)
    assert done.stdout == "hello\n", done.stderr
    assert received(run, "us-west", "inside", 1) == ["hello"]


def test_lookups_by_http_stay_inside_of_the_network_or_outside(run: ComposeRuntime) -> None:
    path = "/lookup/v2/topic/persistent/public/default/looked-up"
    region = next(region for region in complete(run.status()).regions if region.name == "us-east")
    with urllib.request.urlopen(region.admin_url + path) as answer:
        outside = json.load(answer)
    assert outside["brokerUrl"] == region.service_url
    assert outside["httpUrl"] == region.admin_url
    look = f"import urllib.request as r; print(r.urlopen('http://us-east:8080{path}').read().decode())"
    network = run._containers._run_label.partition("=")[2]
    command = ["docker", "run", "--rm", "--network", network, "--entrypoint", "python3"]
    done = subprocess.run(
        [*command, "geoemu-region:local", "-c", look], check=True, capture_output=True, text=True, timeout=30
    )
    inside = json.loads(done.stdout)
    assert inside["brokerUrl"] == "pulsar://us-east:6650"
    assert inside["httpUrl"] == "http://us-east:8080"


def test_logs_are_what_it_printed_and_goes_on_to_print_over_its_starts(run: ComposeRuntime) -> None:
    async def scenario() -> None:
        lines = run.logs("us-west", follow=True)
        first = await anext(lines)
        assert "us-west" in first
        assert first in [line async for line in run.logs("us-west")]
        if "listens on port" not in first:
            await _until(lines, "listens on port")
        await run.restart("us-west")
        await _until(lines, "listens on port")
        await lines.aclose()  # type: ignore[attr-defined]

    async def _until(lines: Any, text: str) -> None:
        async for line in lines:
            if text in line:
                return

    complete(scenario())


def test_names_that_are_not_in_the_run_are_refused(run: ComposeRuntime) -> None:
    with pytest.raises(Refused, match="did you mean us-east"):
        complete(run.kill("us-esat"))
    with pytest.raises(Refused, match="name two different regions"):
        complete(begin(run, "cut", "us-east", "us-east"))


@pytest.mark.skipif("sys.version_info[:2] != (3, 11)", reason="the image's Python is 3.11")
def test_a_region_in_an_image_runs_compiled_modules_of_its_sources(run: ComposeRuntime) -> None:
    """As the region itself finds them: the program of its container."""
    program = (
        "import emulator.wire.frames as frames, importlib.util as util; from emulator.compiled import *; "
        "print(frames.__file__, problem_of_build(), util.find_spec('mypyc'))"
    )
    region = complete(container(run, REGIONS[0]))
    done = subprocess.run(
        ["docker", "exec", region.id, "python3", "-c", program], capture_output=True, text=True, check=True
    )
    path, problem, compiler = done.stdout.split()
    assert path.startswith("/geoemu/lib/emulator/wire/frames.cpython-311")
    assert (problem, compiler) == ("None", "None")


def test_a_missing_image_is_refused_with_what_to_type(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEOEMU_REGION_IMAGE", "geoemu-nobody-made:local")
    with pytest.raises(
        Refused, match=r"geoemu-nobody-made:local is missing: `bash compose/images.sh region`"
    ):
        ComposeRuntime.create(small_topology(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_image_that_was_built_from_other_sources_is_used_with_a_warning(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    image = f"geoemu-stale-{os.getpid()}:local"
    recipe = f"FROM geoemu-region:local\nLABEL {SOURCES_LABEL}=other\n"
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", image, "-"],
        input=recipe,
        check=True,
        capture_output=True,
        text=True,
    )
    monkeypatch.setenv("GEOEMU_REGION_IMAGE", image)
    try:
        with caplog.at_level(logging.WARNING, logger="emulator"):
            ComposeRuntime.create(small_topology(tmp_path), tmp_path / "run")
    finally:
        subprocess.run(["docker", "rmi", image], check=True, capture_output=True)
    (said,) = [record.getMessage() for record in caplog.records if image in record.getMessage()]
    assert "bash compose/images.sh region" in said
    assert (tmp_path / "run" / "compose.yaml").exists()


def test_a_region_that_cannot_start_reports_its_exit_code_and_leaves_no_container(
    run_dir: Path, tmp_path: Path
) -> None:
    runtime = ComposeRuntime.create(small_topology(tmp_path), tmp_path / "run")
    (tmp_path / "run" / "regions" / "us-west" / "log.sqlite").write_text("no database " * 1000)
    with pytest.raises(RuntimeFailure, match="us-west ended with exit code 2"):
        complete(runtime.up())
    assert complete(runtime._containers.by_region()) == {}
    with pytest.raises(Refused, match="has ended"):
        complete(runtime.up())


@pytest.mark.within(DEADLINE_SECONDS)
async def test_what_is_rendered_comes_up_by_hand_and_is_a_run_like_any_other(
    run_dir: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "rendered"
    render(small_topology(tmp_path), folder)

    runtime = open_run(folder)
    assert set(states(await runtime.status()).values()) == {"stopped"}
    try:
        await compose(folder, "up", "--detach", "--wait", seconds=DEADLINE_SECONDS)
        await runtime.kill("us-west")
        assert states(await runtime.status())["us-west"] == "killed"
        await compose(folder, "up", "--detach", "--wait", seconds=DEADLINE_SECONDS)
        assert states(await runtime.status())["us-west"] == "running"
        await runtime.down()
    finally:
        await remove(folder)


def test_what_compose_complains_of_is_passed_on(run_dir: Path, tmp_path: Path) -> None:
    runtime = ComposeRuntime.create(small_topology(tmp_path), tmp_path / "run")
    port = next(region.service_port for region in RunDirectory(tmp_path / "run").read().regions.values())
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(RuntimeFailure, match=rf"failed:(.|\n)*{port}"),
    ):
        complete(runtime.up())
    assert complete(runtime._containers.by_region()) == {}


def test_no_engine_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(Refused, match="no Docker engine responds: start one"):
        ComposeRuntime.create(small_topology(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_down_leaves_no_container_and_keeps_logs_and_output(run_dir: Path, run: ComposeRuntime) -> None:
    """This test is the last one: it ends the run."""
    complete(run.kill("us-west"))
    complete(run.down())
    assert states(complete(run.status())) == {
        "us-east": "stopped",
        "us-west": "killed",
        "eu-central": "stopped",
    }
    assert complete(run._containers.by_region()) == {}
    for region in REGIONS:
        assert (run_dir / "regions" / region / "log.sqlite").exists()
        assert "listens on port" in (run_dir / "regions" / region / "output.log").read_text()
    with pytest.raises(Refused, match="has ended"):
        complete(run.start("us-east"))
    complete(run.down())
