"""Fake regions as processes: what the runtime does, also when a region misbehaves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from emulator.config.region import RegionConfig
from emulator.errors import Refused, RuntimeFailure
from emulator.model.values import CLIENTS
from emulator.run.directory import RunDirectory
from emulator.run.processes import ProcessState
from emulator.runtimes import region_kafka, region_machines, region_processes, regions
from emulator.runtimes.admin_client import NoHttpResponse, call_url
from emulator.runtimes.contract import RunStatus
from emulator.runtimes.process import ProcessRuntime

from .fixtures import DEADLINE_SECONDS, REGIONS, begin, fake_program, fake_run, heal, living, wait_until

Steps = Callable[[ProcessRuntime], Coroutine[Any, Any, None]]


def run_steps(folder: Path, steps: Steps, *behaviours: str) -> ProcessRuntime:
    """Run a scenario on fake regions, and take the run down."""

    async def whole() -> ProcessRuntime:
        runtime = fake_run(folder, *behaviours)
        await runtime.up()
        await steps(runtime)
        await runtime.down()
        return runtime

    return asyncio.run(asyncio.wait_for(whole(), DEADLINE_SECONDS))


@pytest.fixture
def runtime(tmp_path: Path) -> ProcessRuntime:
    return fake_run(tmp_path)


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Bring the run up for a test with a `runtime`, and take it down."""

    def run(test: Coroutine[Any, Any, None]) -> None:
        async def scenario() -> None:
            runtime: ProcessRuntime = request.getfixturevalue("runtime")
            await runtime.up()
            await test
            await runtime.down()

        asyncio.run(asyncio.wait_for(scenario(), DEADLINE_SECONDS))

    return run if "runtime" in request.fixturenames else asyncio.run


def states(status: RunStatus) -> dict[str, str]:
    return {region.name: region.state for region in status.regions}


def received_links(run_dir: Path, region: str) -> list[list[str]]:
    """Return every link state that a region received, in order."""
    file = run_dir / "regions" / region / "received.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def elsewhere(runtime: ProcessRuntime) -> ProcessRuntime:
    """The same run, as another terminal sees it."""
    return ProcessRuntime(RunDirectory(runtime.run_dir), program=runtime._processes._program)


def test_the_status_follows_a_run_up_and_down(tmp_path: Path) -> None:
    async def steps(runtime: ProcessRuntime) -> None:
        status = await runtime.status()
        assert status.runtime == "process"
        assert states(status) == dict.fromkeys(REGIONS, "running")
        assert sorted(region.pid or 0 for region in status.regions) == sorted(living(runtime.run_dir))
        assert {(link.source, link.target): link.state for link in status.links} == {
            (a, b): "up" for a in REGIONS for b in REGIONS if a != b
        }

    runtime = run_steps(tmp_path, steps)
    status = asyncio.run(runtime.status())
    assert states(status) == dict.fromkeys(REGIONS, "stopped")
    assert [region.pid for region in status.regions] == [None] * 3
    assert living(runtime.run_dir) == []


async def test_a_killed_region_is_killed_a_stopped_one_stopped_and_both_come_back_on_their_ports(
    runtime: ProcessRuntime,
) -> None:
    before = await runtime.status()
    await runtime.kill("us-east")
    await runtime.stop("us-west")
    assert states(await runtime.status()) == {
        "us-east": "killed",
        "us-west": "stopped",
        "eu-central": "running",
    }
    await runtime.start("us-east")
    await runtime.restart("us-west")
    after = await runtime.status()
    assert states(after) == dict.fromkeys(REGIONS, "running")
    for old, new in zip(before.regions, after.regions, strict=True):
        assert (old.service_url, old.admin_url) == (new.service_url, new.admin_url)
        assert (old.pid == new.pid) == (old.name == "eu-central")


async def test_a_lost_region_is_lost_until_it_is_started(runtime: ProcessRuntime) -> None:
    await runtime.lose("us-east")
    await runtime.lose("us-east")
    assert states(await runtime.status())["us-east"] == "lost"
    await runtime.kill("us-east")
    assert states(await elsewhere(runtime).status())["us-east"] == "lost"
    await runtime.restart("us-west")
    await runtime.start("us-east")
    assert states(await runtime.status()) == dict.fromkeys(REGIONS, "running")


async def test_every_verb_may_come_twice(runtime: ProcessRuntime) -> None:
    for verb in (runtime.pause, runtime.resume, runtime.kill, runtime.start, runtime.stop):
        await verb("us-east")
        await verb("us-east")
    await runtime.kill("us-east")
    assert states(await runtime.status())["us-east"] == "stopped", "there was nothing to kill"

    for fault, values in (
        ("cut", {}),
        ("hold", {}),
        ("latency", {"latency_ms": 250}),
        ("reset", {}),
        ("heal", {}),
    ):
        await begin(runtime, fault, "us-west", "eu-central", **values)
        await begin(runtime, fault, "us-west", "eu-central", **values)
    await runtime.down()


async def test_verbs_work_from_another_terminal(runtime: ProcessRuntime) -> None:
    other = elsewhere(runtime)
    await other.kill("us-east")
    assert states(await runtime.status())["us-east"] == "killed"
    await other.start("us-east")
    await runtime.pause("us-east")
    assert states(await other.status())["us-east"] == "paused"
    await other.down()
    assert states(await runtime.status()) == dict.fromkeys(REGIONS, "stopped")


async def test_a_region_killed_by_hand_is_noticed(runtime: ProcessRuntime) -> None:
    pid = (await runtime.status()).regions[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while states(await runtime.status())["us-east"] != "killed":
        await asyncio.sleep(0.01)


async def test_both_ends_of_a_link_receive_the_states_of_both_directions(runtime: ProcessRuntime) -> None:
    await begin(runtime, "cut", "us-east", "us-west")
    for region in ("us-east", "us-west"):
        assert sorted(received_links(runtime.run_dir, region)) == [
            ["us-east", "us-west", "cut"],
            ["us-west", "us-east", "cut"],
        ]
    assert received_links(runtime.run_dir, "eu-central") == []
    links = {(link.source, link.target): link.state for link in (await runtime.status()).links}
    assert links["us-east", "us-west"] == links["us-west", "us-east"] == "cut"
    assert links["us-east", "eu-central"] == "up"


async def test_one_way_is_one_way_and_healing_everything_heals_everything(runtime: ProcessRuntime) -> None:
    await begin(runtime, "cut", "us-east", "us-west", one_way=True)
    await begin(runtime, "hold", "eu-central", "us-west", one_way=True)
    assert received_links(runtime.run_dir, "us-west") == [
        ["us-east", "us-west", "cut"],
        ["eu-central", "us-west", "held"],
    ]
    await runtime.heal()
    assert {link.state for link in (await runtime.status()).links} == {"up"}


async def test_latency_is_given_and_taken_back(runtime: ProcessRuntime) -> None:
    declared = {(link.source, link.target): link.shape for link in (await runtime.status()).links}
    await begin(runtime, "latency", "us-east", "us-west", latency_ms=250, jitter_ms=20)
    await begin(runtime, "cut", "us-east", "us-west", one_way=True)
    changed = [link for link in (await runtime.status()).links if link.shape != link.declared]
    assert [(link.source, link.target, link.state) for link in changed] == [
        ("us-east", "us-west", "cut"),
        ("us-west", "us-east", "up"),
    ]
    assert {(link.shape.latency_ms, link.shape.jitter_ms) for link in changed} == {(250, 20)}
    await heal(runtime, "us-east", "us-west")
    assert {(link.source, link.target): link.shape for link in (await runtime.status()).links} == declared


async def test_a_region_that_was_down_when_a_link_was_cut_starts_with_the_link_cut(
    runtime: ProcessRuntime,
) -> None:
    await runtime.kill("us-east")
    await begin(runtime, "cut", "us-east", "us-west", one_way=True)
    await runtime.start("us-east")
    config = RegionConfig.load(runtime.run_dir / "regions" / "us-east" / "region.json")
    shapes = {peer.region: (peer.outbound.state, peer.inbound.state) for peer in config.peers}
    assert shapes == {"us-west": ("cut", "up"), "eu-central": ("up", "up")}
    assert received_links(runtime.run_dir, "us-west") == [["us-east", "us-west", "cut"]]


async def test_a_region_that_was_paused_during_a_cut_applies_the_cut_when_it_resumes(
    runtime: ProcessRuntime,
) -> None:
    await runtime.pause("us-east")
    await begin(runtime, "cut", "us-east", "us-west", one_way=True)
    assert received_links(runtime.run_dir, "us-east") == []
    await runtime.resume("us-east")
    assert ["us-east", "us-west", "cut"] in received_links(runtime.run_dir, "us-east")
    assert ["us-east", "eu-central", "up"] in received_links(runtime.run_dir, "us-east")


async def test_connections_of_a_region_that_dies_during_a_reset_count_as_broken(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container engine reports a killed container as running for a moment."""
    await runtime.kill("us-east")
    present, looks = runtime._states, iter(range(3))

    async def reported_late() -> dict[str, ProcessState]:
        states = await present()
        return states if next(looks, None) is None else {**states, "us-east": "running"}

    monkeypatch.setattr(runtime, "_states", reported_late)
    await runtime.break_connections([("us-east", "us-west")], "reset")
    assert next(looks, None) is None, "it looked again"


async def test_a_link_changes_while_one_of_its_regions_is_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_machines, "APPLY_SECONDS", 5.0)
    async with asyncio.timeout(DEADLINE_SECONDS):
        runtime = fake_run(tmp_path, "--lingers", "us-west")
        await runtime.up()
        stop = asyncio.create_task(runtime.stop("us-west"))
        port = runtime._directory.read().regions["us-west"].admin_port
        with suppress(NoHttpResponse):
            while True:
                await call_url(f"http://127.0.0.1:{port}", "GET", "/")
        await begin(elsewhere(runtime), "cut", CLIENTS, "us-west")
        assert states(await runtime.status())["us-west"] != "stopped", "it still stops"
        record = runtime._directory.read()
        assert regions.running_peers(record, await runtime._states(), "us-east") == ["eu-central"]
        await runtime.kill("us-west")
        await stop
        await runtime.down()


async def test_a_paused_region_is_resumed_not_started(runtime: ProcessRuntime) -> None:
    await runtime.pause("us-east")
    with pytest.raises(RuntimeFailure, match="us-east is paused: `geoemu resume us-east`"):
        await runtime.start("us-east")
    await runtime.stop("us-east")
    for verb in (runtime.pause, runtime.resume):
        with pytest.raises(RuntimeFailure, match="us-east is not running: `geoemu start us-east`"):
            await verb("us-east")


async def test_what_a_run_does_not_have_is_refused_with_what_it_has(runtime: ProcessRuntime) -> None:
    for verb in (runtime.kill, runtime.lose, runtime.stop, runtime.start, runtime.pause, runtime.resume):
        with pytest.raises(
            Refused,
            match="no region 'us-esat' in this run: did you mean us-east\\? regions are us-east, ",
        ):
            await verb("us-esat")
    with pytest.raises(Refused, match="no region 'mars' in this run: regions are us-east, "):
        await begin(runtime, "cut", "us-east", "mars")
    with pytest.raises(Refused, match="no link us-east -> us-east: name two different regions"):
        await begin(runtime, "hold", "us-east", "us-east")
    with pytest.raises(Refused, match="no region"):
        await anext(runtime.logs("mars"))


async def test_nothing_starts_in_a_run_that_has_ended(runtime: ProcessRuntime) -> None:
    await runtime.down()
    for start in (runtime.up(), runtime.start("us-east")):
        with pytest.raises(Refused, match="has ended: start a new one with `geoemu up`"):
            await start
    assert living(runtime.run_dir) == []


def test_a_region_that_dies_at_the_start_takes_the_run_down_and_its_last_output_is_shown(
    tmp_path: Path,
) -> None:
    runtime = fake_run(tmp_path, "--dies", "us-west")
    with pytest.raises(RuntimeFailure) as failure:
        asyncio.run(runtime.up())
    assert str(failure.value) == (
        f"us-west ended with exit code 3 before it was ready; the last lines of "
        f"{runtime.run_dir}/regions/us-west/output.log:\n    fake us-west begins\n    no disk left"
    )
    assert living(runtime.run_dir) == []


def test_a_region_that_does_not_become_ready_is_reported_with_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "READY_SECONDS", 1.0)
    runtime = fake_run(tmp_path, "--never-ready", "us-west")
    with pytest.raises(
        RuntimeFailure, match=r"us-west is not ready after 1 s \(the end of time\): `geoemu logs"
    ):
        asyncio.run(runtime.up())
    assert living(runtime.run_dir) == []


async def test_a_region_that_lives_and_was_never_ready_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(runtime: ProcessRuntime) -> None:
        up = asyncio.create_task(runtime.up())
        while (region := (await elsewhere(runtime).status()).regions[1]).waiting_for != "the end of time":
            await asyncio.sleep(0.01)
        assert region.state == "starting"
        up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await up

    await asyncio.wait_for(steps(fake_run(tmp_path, "--never-ready", "us-west")), DEADLINE_SECONDS)
    assert living(tmp_path / "run") == []


def test_a_region_that_does_not_stop_is_killed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_processes, "STOP_SECONDS", 0.3)

    async def steps(runtime: ProcessRuntime) -> None:
        with pytest.raises(RuntimeFailure, match=r"us-west did not end within 0\.3 s and had to be killed"):
            await runtime.down()
        assert states(await runtime.status()) == {
            "us-east": "stopped",
            "us-west": "killed",
            "eu-central": "stopped",
        }

    run_steps(tmp_path, steps, "--deaf", "us-west")


def test_the_kafkas_of_a_run_are_stopped_although_a_region_had_to_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_processes, "STOP_SECONDS", 0.3)
    stopped: list[str] = []

    async def stop_all(region_dirs: Iterable[Path]) -> None:
        stopped.extend(one.name for one in region_dirs)

    monkeypatch.setattr(region_kafka, "stop_all", stop_all)

    async def steps(runtime: ProcessRuntime) -> None:
        with pytest.raises(RuntimeFailure, match="us-west did not end"):
            await runtime.down()
        assert stopped == list(REGIONS)

    run_steps(tmp_path, steps, "--deaf", "us-west")


async def test_logs_are_printed_line_by_line_over_all_starts_and_can_be_followed(
    runtime: ProcessRuntime,
) -> None:
    following = runtime.logs("us-east", follow=True)
    assert await anext(following) == "fake us-east begins"
    next_line = asyncio.ensure_future(anext(following))
    await runtime.restart("us-east")
    assert await next_line == "fake us-east begins"
    assert [line async for line in runtime.logs("us-east")] == ["fake us-east begins"] * 2


def make_and_die(folder: Path, *, detached: bool) -> ProcessRuntime:
    """Create a run whose creator is killed as soon as it is up."""
    maker = f"""
import asyncio, os, signal
from pathlib import Path
from tests.runtimes.fixtures import fake_run
runtime = fake_run(Path({str(folder)!r}), detached={detached})
asyncio.run(runtime.up())
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", maker], cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    return ProcessRuntime(RunDirectory(folder / "run"), program=fake_program())


def test_a_run_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    runtime = make_and_die(tmp_path, detached=False)
    wait_until(lambda: living(runtime.run_dir) == [], "its regions end by themselves")
    with pytest.raises(
        Refused, match=r"the program that owned the run .* has ended, and so have its regions"
    ):
        asyncio.run(runtime.start("us-east"))
    assert living(runtime.run_dir) == []


def test_a_detached_run_outlives_its_maker(tmp_path: Path) -> None:
    runtime = make_and_die(tmp_path, detached=True)
    asyncio.run(runtime.restart("us-east"))
    assert len(living(runtime.run_dir)) == 3
    asyncio.run(runtime.down())
    assert living(runtime.run_dir) == []
