"""kill -9 behind each single commit of a region on SQLite while a transaction goes through it: all of it counts or
nothing, and what was told stands (INV-76)."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from emulator.client import EARLIEST, Client, ClientError, Transaction
from emulator.transaction_names import TxnId
from tests.broker.regions import _free_port
from tests.broker.transactions.killed_region import live, region_on, subscribed

pytestmark = [pytest.mark.real, pytest.mark.long]

PATIENCE_SECONDS = 30
COMMITS_MAX = 40

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.broker.transactions.killed_region"])


def told_until_killed(path: Path, port: int, after: int, commit: bool) -> list[str]:
    """What a life told."""
    ours, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=live, args=(path, port, after, commit, theirs))
    child.start()
    theirs.close()
    told = b""
    while ours.poll(PATIENCE_SECONDS) and (heard := os.read(ours.fileno(), 4096)):
        told += heard
    child.kill()
    child.join()
    ours.close()
    return told.decode().splitlines()


async def examine(path: Path, port: int, told: list[str], commit: bool) -> None:
    """What the next life has of it."""
    async with asyncio.timeout(PATIENCE_SECONDS), region_on(path, port) as (_, client):
        began = next((TxnId(*map(int, line.split()[1:])) for line in told if line.startswith("b")), None)
        if began is not None:
            with suppress(ClientError):  # it may have been decided otherwise
                await Transaction(client.coordinators, began, client.service_address).abort()
        consumer = await subscribed(client)
        found, is_left = await stored(client), await _is_given(consumer)
        assert (found, is_left) in (([b"result"], False), ([], True)), (told, found, is_left)
        if "d" in told:
            assert found == ([b"result"] if commit else []), (told, found)


async def stored(client: Client) -> list[bytes]:
    reader = await client.reader("outbox", EARLIEST)
    found = []
    while await reader.has_message():
        found.append((await reader.receive()).payload)
    await reader.close()
    return found


async def _is_given(consumer: object) -> bool:
    """Whether the message of the inbox is there to be processed: it comes in front of the next one."""
    client: Client = consumer.client  # type: ignore[attr-defined]
    await (await client.producer("inbox")).send(b"next")
    first: bytes = (await consumer.receive()).payload  # type: ignore[attr-defined]
    return first == b"it"


@pytest.mark.parametrize("commit", [True, False])
def test_a_region_that_is_killed_behind_any_commit_has_all_of_a_transaction_or_nothing(
    commit: bool, tmp_path: Path
) -> None:
    lives = []
    for after in count(1):
        assert after < COMMITS_MAX, "it never ends"
        path, port = tmp_path / f"{after}.sqlite", asyncio.run(_free_port())
        told = told_until_killed(path, port, after, commit)
        asyncio.run(examine(path, port, told, commit))
        lives.append(told)
        if "o" in told:
            break
    assert [] in lives, "none died before it was told that the transaction began"
    assert any("d" not in told and told for told in lives), "none died between its beginning and its end"
    assert len(lives) > 7, "there are fewer commits than steps"
