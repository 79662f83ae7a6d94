"""Containers that are killed or replaced under load. Spark then reads the Kafkas themselves: nothing acknowledged is
lost, and nothing is stored twice."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.config.loading import load_topology
from emulator.config.region import RegionConfig
from emulator.run.directory import replace_file
from emulator.run.history import HistoryWriter
from emulator.run.history_events import read_events
from emulator.runtimes.compose.command import compose_command
from emulator.runtimes.compose.file import KAFKA_LABEL, REGION_LABEL
from emulator.runtimes.compose.region_container import ADMIN_PORT, PUBLISHED_PORT
from emulator.runtimes.compose.runtime import ComposeRuntime
from emulator.runtimes.docker_engine import Container
from emulator.runtimes.listening import WantedPort, choose_ports
from emulator.runtimes.opening import open_run
from emulator.runtimes.verifier import verify_command, verify_now
from emulator.scenarios.actors.processes import ActorProcess
from emulator.scenarios.region_queries import read_topics_over_http, survey
from tests.runtimes.containers import ROOT, need_containers, remove
from tests.runtimes.fixtures import admin_request
from tests.runtimes.test_metadata_sync import CREATION, OFF, creates, is_off, until_said
from tests.scenarios.virtual import consumer_spec, producer_spec

pytestmark = [pytest.mark.real, pytest.mark.long]

UP_SECONDS = 120
DEADLINE_SECONDS = 60.0
SCENARIO_SECONDS = 300
VICTIM = "us-east"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sample topology: three regions, a Kafka for each, deduplication."""
    need_containers("region", "kafka")
    run_dir = tmp_path_factory.mktemp("drill") / "run"
    try:
        topology = load_topology(ROOT / "compose" / "topology.yaml")
        runtime = ComposeRuntime.create(topology, run_dir, detached=True)
        asyncio.run(asyncio.wait_for(runtime.up(), UP_SECONDS))
        yield run_dir
    finally:
        asyncio.run(remove(run_dir))


@pytest.fixture
def run(run_dir: Path) -> ComposeRuntime:
    runtime = open_run(run_dir)
    assert isinstance(runtime, ComposeRuntime)
    return runtime


# --- the load -------------------------------------------------------------------------------------------


class Load:
    """A producer in every region and a consumer in two, with real clients. The run's history has all their requests and
    responses."""

    def __init__(self, run: ComposeRuntime, name: str) -> None:
        self._run = run
        self.name = name
        self.topic = f"persistent://public/default/{name}"
        self.producers = {region: self.producer(region) for region in run.topology.region_names}
        self.consumers = {region: self._consumer(region) for region in (VICTIM, "eu-central")}

    def producer(self, region: str, name: str = "orders") -> ActorProcess:
        part = producer_spec(
            name=f"{self.name}-{name}-{region}",
            region=region,
            topic=self.topic,
            rate_per_second=200,
            send_timeout_ms=0,  # it retries until it gets a response
            max_pending=100_000,
        )
        return ActorProcess(part, self._run.run_dir)

    def _consumer(self, region: str) -> ActorProcess:
        subscription = f"billing-{region}"
        part = consumer_spec(
            name=f"{self.name}-{subscription}", region=region, topic=self.topic, subscription=subscription
        )
        return ActorProcess(part, self._run.run_dir)

    @property
    def everyone(self) -> list[ActorProcess]:
        return [*self.consumers.values(), *self.producers.values()]

    async def begin(self) -> None:
        scenario = self._run.run_dir / "history" / "scenario.jsonl"
        if not scenario.exists():  # the actors' histories refer to this one
            HistoryWriter(scenario, "scenario").close()
        urls = await service_urls(self._run)
        await asyncio.gather(*(actor.begin(urls[actor.part.region]) for actor in self.everyone))

    async def end(self) -> None:
        """Wait until every publish has its outcome and every message has arrived everywhere, and stop the actors."""
        await asyncio.wait_for(
            asyncio.gather(*(producer.finish() for producer in self.producers.values())), DEADLINE_SECONDS
        )
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await self._missing():
                await asyncio.sleep(0.05)
        await asyncio.gather(*(actor.finish() for actor in self.consumers.values()))

    async def leave(self) -> None:
        await asyncio.gather(*(actor.leave() for actor in self.everyone))

    async def _missing(self) -> list[str]:
        found = await survey((await self._run.status()).regions, read_topics_over_http)
        if found.silent:
            return list(found.silent)
        pending = (
            found.unacknowledged_in(region, self.topic, f"billing-{region}") for region in self.consumers
        )
        return [
            *found.unreplicated(self.topic),
            *(sentence for some in pending for sentence in some),
        ]


async def published_more(actor: ActorProcess, count: int = 200) -> None:
    """Wait until `count` more of its publishes were acknowledged."""
    goal = actor.counts.ok + count
    await until(lambda: actor.counts.ok >= goal, f"{actor.part.name} has {goal} acknowledged")


async def until(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not within {DEADLINE_SECONDS:g} s: {what}")


async def service_urls(run: ComposeRuntime) -> dict[str, str]:
    return {region.name: region.service_url for region in (await run.status()).regions}


def assert_valid(run: ComposeRuntime, report: Path) -> None:
    """The verdict is computed from the Kafkas; the regions' own reports do not count."""
    verdict = verify_now(verify_command(run.run_dir, engine="embedded", report=report, as_json=True))
    judged = json.loads(verdict.output)
    assert judged["verdict"] == "valid", [c for c in judged["checks"] if c["verdict"] != "valid"]


def perform(scenario: object) -> None:
    asyncio.run(asyncio.wait_for(scenario, SCENARIO_SECONDS))  # type: ignore[arg-type]


# --- the scenarios --------------------------------------------------------------------------------------


def test_a_policy_set_in_one_cluster_is_obeyed_in_the_other(run: ComposeRuntime) -> None:
    """PIP-136 with the topic that the sample declares: us-east is in cluster americas, eu-central in europe."""

    async def scenario() -> None:
        here, _, there = (await run.status()).regions
        assert await asyncio.to_thread(creates, there, "created-before")
        assert await admin_request(here, "POST", CREATION, OFF) == 204
        await until_said(there, CREATION, is_off)
        assert not await asyncio.to_thread(creates, there, "refused")
        assert await admin_request(there, "DELETE", CREATION) == 204
        await until_said(here, CREATION, lambda said: not is_off(said))
        assert await asyncio.to_thread(creates, here, "created-after")

    perform(scenario())


@pytest.mark.parametrize(
    "victims",
    [("region",), pytest.param(("kafka",), marks=pytest.mark.slow), ("region", "kafka")],
    ids="-and-".join,
)
def test_kill_9_during_load_neither_loses_nor_duplicates_messages(
    run: ComposeRuntime, victims: tuple[str, ...], tmp_path: Path
) -> None:
    async def scenario() -> None:
        load = Load(run, f"killed-{'-'.join(victims)}")
        try:
            await load.begin()
            await published_more(load.producers[VICTIM])
            labels = {"region": REGION_LABEL, "kafka": KAFKA_LABEL}
            containers = [await container(run, labels[victim]) for victim in victims]
            await asyncio.gather(*(run._containers.engine.kill(victim) for victim in containers))
            await published_more(load.producers["us-west"])
            await run.start(VICTIM)
            await published_more(load.producers[VICTIM])
            await load.end()
        finally:
            await load.leave()

    perform(scenario())
    assert_valid(run, tmp_path)


def test_a_paused_and_replaced_region_disconnects_its_clients_and_ends_when_it_resumes(
    run: ComposeRuntime, tmp_path: Path
) -> None:
    """Follows docs/CONTAINERS.md. After the pause the region acknowledges none of its client's requests. `start` makes
    the service's own container the owner again, and the replacement exits."""

    async def scenario() -> None:
        load = Load(run, "replaced")
        try:
            await load.begin()
            stays = load.producers[VICTIM]
            await published_more(stays)
            await run.pause(VICTIM)
            paused_ms = time.time() * 1000
            replacement_id, url = await start_replacement(run, VICTIM)
            load.producers["replacement"] = goes_on = load.producer(VICTIM, "replacement")
            await goes_on.begin(url)
            await published_more(goes_on)
            assert stays.counts.connected, "or the region would have no client to disconnect"

            old = await container(run, REGION_LABEL)
            await run._containers.engine.resume(old)
            await until(lambda: not is_running(old.id), "the old one ends")
            assert exit_code(old.id) == 1
            assert "another process owns this region's log" in await run._containers.engine.output(old)
            ended_ms = time.time() * 1000
            await until(lambda: not stays.counts.connected, "the old one sent its client away")
            await published_more(goes_on)
            asked_times = acknowledged_asked_at(run, stays.part.name, after_ms=paused_ms, before_ms=ended_ms)
            assert all(asked_ms < paused_ms for asked_ms in asked_times)

            await run.start(VICTIM)
            await until(lambda: not is_running(replacement_id), "the replacement ends in its turn")
            assert exit_code(replacement_id) == 1
            await goes_on.move(VICTIM, (await service_urls(run))[VICTIM])
            for producer in (stays, goes_on):
                await published_more(producer)
            await load.end()
        finally:
            await load.leave()

    perform(scenario())
    assert_valid(run, tmp_path)


# --- containers -----------------------------------------------------------------------------------------


async def container(run: ComposeRuntime, label: str) -> Container:
    return (await run._containers.engine.containers(run._containers._run_label, label))[VICTIM]


async def start_replacement(run: ComposeRuntime, region: str) -> tuple[str, str]:
    """Start a second container on the region's log, under its network name and with ports of its own on the host;
    return (id, URL) once it is healthy."""
    wanted = [WantedPort(region, key, "127.0.0.1", 0) for key in ("service_port", "admin_port")]
    service_port, admin_port = choose_ports(wanted)
    folder = run.run_dir / "regions" / region
    config = dataclasses.replace(
        RegionConfig.load(folder / "region.json"),
        advertised_service_port=service_port,
        advertised_admin_port=admin_port,
    )
    replace_file(folder / "replacement.json", config.to_json())
    published = (f"127.0.0.1:{service_port}:{PUBLISHED_PORT}", f"127.0.0.1:{admin_port}:{ADMIN_PORT}")
    command = [*compose_command(), "--progress", "quiet", "run", "--detach", "--no-deps", "--use-aliases"]
    for ports in published:
        command += ["--publish", ports]
    made = subprocess.run(
        [*command, region, "/region/replacement.json"],
        cwd=run.run_dir,
        check=True,
        capture_output=True,
        text=True,
    )
    identity = made.stdout.strip()
    await until(
        lambda: inspect(identity, "{{.State.Health.Status}}") == "healthy", "the replacement is ready"
    )
    return identity, f"pulsar://127.0.0.1:{service_port}"


def is_running(identity: str) -> bool:
    return inspect(identity, "{{.State.Running}}") == "true"


def exit_code(identity: str) -> int:
    return int(inspect(identity, "{{.State.ExitCode}}"))


def inspect(identity: str, template: str) -> str:
    done = subprocess.run(
        ["docker", "inspect", "--format", template, identity], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def acknowledged_asked_at(
    run: ComposeRuntime, actor: str, *, after_ms: float, before_ms: float
) -> Iterator[float]:
    """Yield the request times of the publishes that were acknowledged in between."""
    asked_ms = {}
    for event in read_events(run.run_dir / "history" / f"{actor}.jsonl"):
        if event.op == "publish" and event.outcome == "asked":
            asked_ms[event.sequence_id] = event.at_ms
        elif event.op == "publish" and event.outcome == "ok" and after_ms < event.at_ms < before_ms:
            yield asked_ms[event.sequence_id]
