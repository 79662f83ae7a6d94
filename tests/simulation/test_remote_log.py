"""The simulated remote log keeps the storage contract, as far as its other owners allow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest

from emulator.errors import StorageError, StorageFenced
from emulator.simulation.host import Host
from emulator.simulation.remote_log import RemoteFaults, RemoteLog, RemoteStore
from emulator.simulation.simulation import Simulation
from emulator.simulation.stored_messages import fencing_violations
from emulator.storage.contract import Log, Replaceable, Store
from tests.storage.harness import Harness, data_of, open_log, read_all
from tests.storage.log_store_contract import LogStoreContract

STEADY = RemoteFaults(commit_seconds=(0.01, 0.01), takeover_seconds=(0.0, 0.0))


class RemoteHarness(Harness):
    def __init__(self, log: RemoteLog) -> None:
        super().__init__()
        self.log = log

    async def _open(self) -> Store:
        return await self.log.open_store()

    async def crash(self, store: Store) -> Store:
        self.log.program_died(asyncio.get_running_loop())
        return await self.open()

    def fill_disk(self, store: Store) -> None:
        self.log.fill()

    def empty_disk(self, store: Store) -> None:
        self.log.make_room()

    def commits(self, store: Store) -> int:
        return self.log.commits


class TestRemoteLog(LogStoreContract):
    """The contract of all backends, in virtual time."""

    @pytest.fixture(
        params=[
            RemoteFaults(),
            RemoteFaults(id_jump_probability=0.3, stall_probability=0.1, read_seconds=(0.0, 0.01)),
            RemoteFaults(lost_answer_probability=0.3, resend_seconds=0.01),
        ],
        ids=["", "slow-and-with-gaps", "loses-answers"],
    )
    def harness(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[RemoteHarness]:
        with Simulation(request.node.name) as simulation:
            monkeypatch.setattr(asyncio.events, "new_event_loop", lambda: simulation.driver.loop)
            yield RemoteHarness(simulation.remote_log("us", request.param))


SimulatedScenario = Callable[[Simulation, RemoteLog], Awaitable[None]]


def play(scenario: SimulatedScenario, faults: RemoteFaults = STEADY, seed: int = 1) -> None:
    with Simulation(seed) as simulation:
        simulation.run(scenario(simulation, simulation.remote_log("us", faults)))  # type: ignore[arg-type]


@pytest.fixture
def log(simulation: Simulation) -> RemoteLog:
    return simulation.remote_log("us", STEADY)


def host_on(simulation: Simulation, log: RemoteLog, name: str) -> Host:
    host = simulation.host(name)
    host.on_kill(lambda: log.program_died(host.loop))
    return host


def spell(outcome: object) -> str:
    if isinstance(outcome, StorageFenced):
        return "f"
    if isinstance(outcome, StorageError):
        return "-" if outcome.definite else "?"
    return "+"


class TestOwners:
    async def test_all_pending_writes_of_a_replaced_owner_fail_as_fenced(
        self, simulation: Simulation, log: RemoteLog
    ) -> None:
        """Entries durable before the takeover stay; nothing of the old owner is stored after it."""
        old = await log.open_store()
        a, b = [await open_log(old, name) for name in "ab"]
        await asyncio.gather(a.append([b"old"]), b.append([b"old"]), old.put("k", b"old"))
        new = await log.open_store()
        waiting = [*(one.append([b"late"]) for one in (a, b, a)), old.put("k", b"late")]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert "".join(map(spell, outcomes)) == "ffff"
        assert isinstance(old.fenced.result(), StorageFenced)
        with pytest.raises(StorageFenced):
            await old.put("other", b"later")
        for name in "ab":
            assert data_of(await read_all(await open_log(new, name))) == [b"old"]
        assert new.get("k") == (b"old", 0)
        assert list(fencing_violations("us", log)) == []

    async def test_an_idle_owner_detects_its_replacement_too(
        self, simulation: Simulation, log: RemoteLog
    ) -> None:
        old = await log.open_store()
        assert isinstance(old, Replaceable)
        await asyncio.sleep(30)
        assert not old.fenced.done()
        new = await log.open_store()
        await asyncio.wait_for(asyncio.shield(old.fenced), 2.1)
        assert not new.fenced.done()

    def test_appends_between_the_two_steps_of_a_takeover_count(self) -> None:
        """The keys are fenced first: some of the old owner's appends are stored, and then the new owner sees them."""
        seen: set[tuple[str, ...]] = set()

        async def scenario(simulation: Simulation, log: RemoteLog) -> None:
            old = await log.open_store()
            t = await open_log(old, "t")
            opening = asyncio.ensure_future(log.open_store())
            outcomes = []
            while "f" not in outcomes:
                outcomes.append(spell((await asyncio.gather(t.append([b"x"]), return_exceptions=True))[0]))
            new = await opening
            assert len(await read_all(await open_log(new, "t"))) == outcomes.count("+")
            with pytest.raises(StorageFenced):
                await old.put("k", b"v")
            seen.add(tuple(outcomes))

        for seed in range(10):
            play(scenario, replace(STEADY, takeover_seconds=(0.0, 0.1)), seed)
        assert len(seen) > 3

    async def test_a_paused_owner_gets_the_pending_response_first_and_then_the_fencing(
        self,
        simulation: Simulation,
        log: RemoteLog,
    ) -> None:
        """Its call was applied while it was frozen; later calls are rejected."""
        received: list[str] = []

        async def program(log: RemoteLog) -> None:
            t, number = await open_log(await log.open_store(), "t"), 0
            while "f" not in received:
                number += 1
                received.append(
                    spell((await asyncio.gather(t.append([b"%d" % number]), return_exceptions=True))[0])
                )

        us = host_on(simulation, log, "us")
        us.start(program(log))
        await asyncio.sleep(0.205)
        us.pause()
        before = len(received)
        await asyncio.sleep(1)
        stored = len(log.entries("t"))
        assert stored == before + 1
        new = await log.open_store()
        us.resume()
        await asyncio.sleep(1)
        assert received[: stored + 1] == ["+"] * stored + ["f"]
        assert len(await read_all(await open_log(new, "t"))) == stored

    def test_calls_of_a_dead_owner_may_arrive_but_never_after_the_fence(self) -> None:
        """A call outlives its sender. It is stored before the next owner takes over, or not at all."""
        found: set[int] = set()

        async def program(log: RemoteLog) -> None:
            (await open_log(await log.open_store(), "t")).append([b"ghost"])
            await asyncio.sleep(3600)

        async def scenario(simulation: Simulation, log: RemoteLog) -> None:
            us = host_on(simulation, log, "us")
            us.start(program(log))
            await asyncio.sleep(0.031)  # two steps of the takeover, one for the log, then the append
            us.kill()
            await asyncio.sleep(simulation.random("pause").choice((0.0, 0.1)))
            us.boot()
            entries = await us.ask(read_entries(log))
            assert len(entries) == len(log.entries("t"))
            await asyncio.sleep(1)
            assert len(entries) == len(log.entries("t"))
            found.add(len(entries))

        async def read_entries(log: RemoteLog) -> list[bytes]:
            return data_of(await read_all(await open_log(await log.open_store(), "t")))

        for seed in range(20):
            play(scenario, seed=seed)
        assert found == {0, 1}


class TestFaults:
    async def test_lost_calls_and_responses_take_time_and_cause_no_duplicates(
        self, simulation: Simulation, log: RemoteLog
    ) -> None:
        """The store retries; the log deduplicates."""
        store = await log.open_store()
        t = await open_log(store, "t")
        log.faults = replace(log.faults, lost_answer_probability=0.8)
        begin = simulation.now
        for number in range(20):
            await t.append([b"%d" % number])
        assert data_of(log.entries("t")) == [b"%d" % number for number in range(20)]
        assert simulation.now - begin > 5 * log.faults.resend_seconds

    def test_a_store_that_gives_up_learns_the_outcome_when_it_opens_the_log_again(self) -> None:
        """The outcome of the group is unknown; what waits behind it is certainly not stored (S5)."""
        stored: set[int] = set()

        async def scenario(simulation: Simulation, log: RemoteLog) -> None:
            store = await log.open_store()
            t = await open_log(store, "t")
            await store.put("k", b"old")
            log.faults = replace(log.faults, lost_answer_probability=1.0, gives_up_seconds=1.0)
            sent = [t.append([b"0"]), t.append([b"1"]), store.put("k", b"new")]
            await asyncio.sleep(0.001)
            sent.append(t.append([b"2"]))
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            assert "".join(map(spell, outcomes)) == "???-"
            with pytest.raises(StorageError):
                await t.append([b"refused"])
            log.faults = STEADY
            again = await open_log(store, "t")
            await again.append([b"after"])
            found = data_of(await read_all(again))
            assert found in ([b"after"], [b"0", b"1", b"after"])
            assert data_of(log.entries("t")) == found
            value = store.get("k")
            assert value is not None
            assert value.value == (b"new" if len(found) == 3 else b"old")
            await store.put("k", b"newer", expected_version=value.version)
            stored.add(len(found))

        for seed in range(20):
            play(scenario, seed=seed)
        assert stored == {1, 3}

    async def test_while_the_log_is_unreachable_writes_and_reads_wait(
        self, simulation: Simulation, log: RemoteLog
    ) -> None:
        """They continue when it is back; nothing is lost and nothing fails."""
        store = await log.open_store()
        t = await open_log(store, "t")
        await t.append([b"before"])
        log.make_unreachable()
        works = [asyncio.ensure_future(work) for work in (t.append([b"x"]), t.read(0, 10, 1000))]
        done, _ = await asyncio.wait(works, timeout=60)
        assert done == set()
        log.make_reachable()
        await asyncio.gather(*works)
        assert data_of(await read_all(t)) == [b"before", b"x"]

    def test_while_the_log_is_unreachable_a_store_with_a_limit_fails(self) -> None:
        """It may be opened again once the log is back."""

        async def scenario(simulation: Simulation, log: RemoteLog) -> None:
            store = await log.open_store()
            t = await open_log(store, "t")
            log.make_unreachable()
            outcomes = await asyncio.gather(
                t.append([b"x"]), t.read(0, 10, 1000), open_log(store, "u"), return_exceptions=True
            )
            assert all(isinstance(outcome, StorageError) for outcome in outcomes)
            with pytest.raises(StorageError, match="does not answer"):
                await log.open_store()
            log.make_reachable()
            await (await open_log(store, "t")).append([b"y"])
            assert data_of(log.entries("t")) == [b"y"]

        play(scenario, replace(STEADY, gives_up_seconds=1.0))

    async def test_closing_does_not_wait_for_ever(self, simulation: Simulation, log: RemoteLog) -> None:
        store = await log.open_store()
        log.make_unreachable()
        waiting = asyncio.ensure_future(store.put("k", b"v"))
        await store.close()
        with pytest.raises(StorageError) as failed:
            await waiting
        assert not failed.value.definite
        assert simulation.now < 10
        with pytest.raises(StorageError, match="closed"):
            await store.put("k", b"v")


async def test_the_evidence_names_entries_that_a_fenced_owner_stored(
    simulation: Simulation,
    log: RemoteLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log without fencing is detected, whether a key was written or an entry."""
    monkeypatch.setattr(RemoteLog, "fence", lambda *_: None)

    old = await log.open_store()
    t: Log = await open_log(old, "t")
    new: RemoteStore = await log.open_store()
    await (await open_log(new, "t")).append([b"new"])
    assert list(fencing_violations("us", log)) == []
    await t.append([b"late"])
    assert [what for what in fencing_violations("us", log) if "entry 1 of t" in what]
    await old.put("k", b"late")
    assert [what for what in fencing_violations("us", log) if "wrote k after owner 2" in what]
