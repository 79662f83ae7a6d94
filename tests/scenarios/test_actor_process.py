"""Actors as processes: they always end, and no caller waits for one that is gone.

No region is needed: nothing listens at the client's address. `test_actors.py` has them publish and receive.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pulsar  # type: ignore[import-untyped]
import pytest

from emulator.recording.responses import message_id_text, outcome_of
from emulator.run.history_events import read_events
from emulator.scenarios.actors.processes import ActorProcess
from emulator.scenarios.actors.pulsar_client import read_identity
from emulator.scenarios.actors.specs import ActorFailure

from .virtual import producer_spec, wait_until

pytestmark = pytest.mark.real


@pytest.fixture
def unused_url() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"pulsar://127.0.0.1:{taken.getsockname()[1]}"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


async def begin_in_vain(actor: ActorProcess, service_url: str) -> asyncio.Task[None]:
    """Start a `begin` that does not end by itself; return once the actor has tried to connect."""
    beginning = asyncio.create_task(actor.begin(service_url))
    history = actor.log.parents[1] / "history" / f"{actor.part.name}.jsonl"
    await wait_until(lambda: history.exists() and b"unknown" in history.read_bytes())
    return beginning


def test_an_actor_that_finds_no_region_keeps_trying_until_it_has_to_leave(
    tmp_path: Path, unused_url: str
) -> None:
    async def scenario() -> None:
        actor = ActorProcess(producer_spec(), tmp_path)
        beginning = await begin_in_vain(actor, unused_url)
        assert not beginning.done()
        began = time.monotonic()
        await actor.leave()
        await actor.leave()
        assert time.monotonic() - began < 5
        with pytest.raises(ActorFailure, match="has left"):
            await beginning
        assert actor.problem is None

    asyncio.run(scenario())
    events = list(read_events(tmp_path / "history" / "orders.jsonl"))
    assert [(event.op, event.outcome, event.region) for event in events[:2]] == [
        ("connect", "asked", "us-east"),
        ("connect", "unknown", "us-east"),
    ]
    assert (tmp_path / "actors" / "orders.log").read_text()


async def test_an_actor_that_dies_fails_its_pending_commands(tmp_path: Path, unused_url: str) -> None:
    actor = ActorProcess(producer_spec(), tmp_path)
    beginning = await begin_in_vain(actor, unused_url)
    assert actor.pid is not None
    os.kill(actor.pid, signal.SIGKILL)
    with pytest.raises(ActorFailure, match=r"orders ended unexpectedly, exit code -9; see .*orders.log"):
        await beginning
    assert actor.problem is not None
    with pytest.raises(ActorFailure, match="ended unexpectedly"):
        await actor.finish()
    await actor.leave()


def test_an_actor_that_never_began_can_leave(tmp_path: Path) -> None:
    asyncio.run(ActorProcess(producer_spec(), tmp_path).leave())


_PARENT = """
import asyncio, sys
from pathlib import Path
from emulator.scenarios.actors.processes import ActorProcess
from emulator.scenarios.actors.specs import ProducerSpec
import json

async def main():
    actor = ActorProcess(ProducerSpec(**json.loads(sys.argv[2])), Path(sys.argv[1]))
    task = asyncio.create_task(actor.begin(sys.argv[3]))
    while actor.pid is None:
        await asyncio.sleep(0.01)
    print(actor.pid, flush=True)
    await task

asyncio.run(main())
"""


def test_an_actor_ends_when_its_parent_process_is_killed(tmp_path: Path, unused_url: str) -> None:
    part = producer_spec()
    fields = json.dumps(dataclasses.asdict(part))
    command = [sys.executable, "-c", _PARENT, str(tmp_path), fields, unused_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        actor_pid = int(parent.stdout.readline())
        assert is_alive(actor_pid)
        parent.kill()
        asyncio.run(wait_until(lambda: not is_alive(actor_pid)))


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ("Ok", "ok"),
        ("MessageTooBig", "failed"),
        ("ProducerQueueIsFull", "failed"),
        ("Timeout", "unknown"),
        ("AlreadyClosed", "unknown"),
        ("ProducerFenced", "unknown"),
        ("TopicTerminated", "unknown"),
        ("ChecksumError", "unknown"),
    ],
)
def test_only_what_was_never_sent_certainly_failed(result: str, outcome: str) -> None:
    assert outcome_of(getattr(pulsar.Result, result)) == outcome


def test_message_ids_and_identities_are_read_as_they_were_written() -> None:
    assert message_id_text(pulsar.MessageId(-1, 5, 7, 2)) == "5:7:2"
    assert message_id_text(pulsar.MessageId(-1, -1, -1, -1)) is None
    identity = {"origin_region": "us-east", "producer": "orders", "sequence_id": 3}
    assert read_identity(json.dumps({**identity, "index": 3}).encode() + b"   ") == identity
    for foreign in (b"", b"hello", b"[1]", b'{"producer": "x"}', b"\xff\x00"):
        assert read_identity(foreign) is None
