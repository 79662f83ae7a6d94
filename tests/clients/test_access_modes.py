"""Exclusive producers with real clients: which access modes exclude each other, and the error that the loser gets."""

from __future__ import annotations

import asyncio

import pytest

from emulator.core.policies.topics import KEEP_ALIVE_INTERVAL
from emulator.model.stored_keys import NamespacePath
from tests.broker.regions import until
from tests.clients.harness import CLIENTS, ORDERS, QUICK, ClientProgram, Scene, case, clients, rejected

pytestmark = [pytest.mark.real, pytest.mark.scene(programs=2, timeout_ms=60_000)]

MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")
IN, WAITS, FENCED, BUSY = "in", "waits", "ProducerFenced", "ProducerBusy"
BESIDE_SHARED = {"Shared": IN, "Exclusive": FENCED, "WaitForExclusive": WAITS, "ExclusiveWithFencing": IN}
BESIDE_AN_OWNER = BESIDE_SHARED | {"Shared": BUSY}
WITHOUT_FENCING = ("go",)
"""Clients that do not offer ExclusiveWithFencing."""
WITHOUT_EPOCHS = ("rust",)
"""Clients that do not send their former epoch when they reconnect: the broker takes them for new producers. They also
do not report a fenced producer to their application, but try to open it again."""
GIVES_UP_WAITING = ("python",)
"""Clients whose operation timeout ends the creation of a producer, although the broker told them to wait."""
SECONDS = 20
FROZEN_SECONDS = 6
"""Two seconds on an idle machine."""
OFFERED = [
    (client, mode)
    for client in CLIENTS
    for mode in MODES
    if client not in WITHOUT_FENCING or mode != "ExclusiveWithFencing"
]
EACH_MODE = pytest.mark.parametrize(("client", "mode"), [case(*one) for one in OFFERED])
EACH_PAIR = pytest.mark.parametrize(
    ("client", "first", "second"),
    [case(client, first, second) for client, first in OFFERED for one, second in OFFERED if one == client],
)


def queue(scene: Scene) -> list[str]:
    """The names of the producers in the wait queue."""
    topic = scene.region.directory.serving.get(ORDERS)
    return [] if topic is None else [producer.producer_name for producer in topic.access.waiting]


def epoch(scene: Scene) -> int | None:
    return scene.region.directory.serving[ORDERS].access.machine.epoch


async def unload(scene: Scene) -> None:
    await scene.region.directory.unload(ORDERS, "requested by the admin API")


async def soon(request: asyncio.Future[dict[str, str]]) -> None:
    await asyncio.wait_for(request, SECONDS)


async def send(program: ClientProgram, payload: str) -> None:
    await asyncio.wait_for(program.send(payload), SECONDS)


async def owner_and_waiter(
    scene: Scene, access: str = "WaitForExclusive", *, owner: str | None = None, waiter: str | None = None
) -> asyncio.Future[dict[str, str]]:
    """Open a producer at one program; return the request of the other program, which is in the wait queue."""
    one, other = scene.programs
    await soon(one.producer(access=access, name=owner))
    request = other.producer(access="WaitForExclusive", name=waiter)
    await until(lambda: len(queue(scene)) == 1)
    return request


@EACH_PAIR
async def test_which_access_modes_exclude_each_other(scene: Scene, first: str, second: str) -> None:
    one, other = scene.programs
    await soon(one.producer(access=first))
    request = other.producer(access=second)
    expected = (BESIDE_SHARED if first == "Shared" else BESIDE_AN_OWNER)[second]
    if expected == WAITS:
        await until(lambda: len(queue(scene)) == 1)
        assert not request.done()
    elif expected == IN:
        await soon(request)
    else:
        assert (await rejected(request)).name == expected
    if second != "ExclusiveWithFencing":
        await send(one, "after")
    elif scene.client not in WITHOUT_EPOCHS:
        assert (await rejected(one.ask("send", key="p", payload="after"))).name == FENCED


@clients()
@pytest.mark.parametrize("how", ["closes", "is killed"])
async def test_a_waiting_producer_takes_over_when_the_owner(scene: Scene, how: str) -> None:
    one, other = scene.programs
    waiting = await owner_and_waiter(scene)
    if how == "closes":
        await one.ask("close", key="p")
    else:
        one.kill()
    await soon(waiting)
    await other.send("mine")
    assert epoch(scene) == 1


@clients(*WITHOUT_EPOCHS)
async def test_the_owner_keeps_a_topic_that_is_unloaded_while_another_waits(scene: Scene) -> None:
    waiting = await owner_and_waiter(scene, owner="owner", waiter="waiter")
    assert queue(scene) == ["waiter"]
    await unload(scene)
    await send(scene.program, "still mine")
    await until(lambda: queue(scene) == ["waiter"])
    assert epoch(scene) == 0
    assert not waiting.done()
    await scene.program.ask("close", key="p")
    await soon(waiting)


@clients()
async def test_a_killed_waiting_producer_leaves_the_queue(scene: Scene) -> None:
    waiting = await owner_and_waiter(scene, "Exclusive")
    scene.programs[1].kill()
    await until(lambda: queue(scene) == [])
    assert (await rejected(waiting)).name == "Gone"
    await scene.program.ask("close", key="p")


@EACH_MODE
async def test_a_producer_of_every_mode_goes_on_after_an_unload(scene: Scene, mode: str) -> None:
    await soon(scene.program.producer(access=mode, name="owner"))
    await scene.program.send("before")
    before = epoch(scene)
    for _ in range(2):
        await unload(scene)
        await send(scene.program, "after")
    assert scene.client in WITHOUT_EPOCHS or epoch(scene) == before


@EACH_MODE
async def test_a_producer_of_every_mode_goes_on_after_its_topic_was_deleted(scene: Scene, mode: str) -> None:
    """The new topic has epochs of its own."""
    await soon(scene.program.producer(access=mode, name="owner"))
    await scene.program.send("before")
    await scene.region.directory.delete(ORDERS, force=True)
    await send(scene.program, "after")
    assert epoch(scene) == (None if mode == "Shared" else 0)


@clients(*GIVES_UP_WAITING)
@pytest.mark.scene(programs=2, timeout_ms=1_500)
async def test_a_waiting_producer_waits_longer_than_the_operation_timeout(scene: Scene) -> None:
    waiting = await owner_and_waiter(scene, "Exclusive")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 4)
    await scene.program.ask("close", key="p")
    await soon(waiting)


@pytest.mark.parametrize("client", QUICK)
async def test_consumers_do_not_keep_a_topic_from_an_exclusive_producer(scene: Scene) -> None:
    await scene.program.subscribe()
    await soon(scene.program.producer(access="Exclusive"))
    await scene.program.send("hello")
    assert await scene.program.receive() == "hello"


@clients()
async def test_a_frozen_owner_is_replaced_after_the_keep_alive_time_of_its_namespace(scene: Scene) -> None:
    """With a probe every second, it is replaced after two (real Pulsar, with a probe every 30 s: a minute)."""
    await scene.region.policies.set(NamespacePath("public/default"), KEEP_ALIVE_INTERVAL, 1_000)
    waiting = await owner_and_waiter(scene, owner="owner")
    scene.program.freeze()
    await asyncio.wait_for(waiting, FROZEN_SECONDS)
    await scene.programs[1].send("mine")
    assert epoch(scene) == 1
