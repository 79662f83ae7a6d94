"""The simulated disk keeps the storage contract, and guarantees nothing beyond it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest

from emulator.errors import StorageError, StorageFull
from emulator.simulation.disk import SimulatedDisk
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.host import Host
from emulator.simulation.simulation import Simulation
from emulator.storage.contract import Log, Store
from tests.storage.harness import Harness, data_of, open_log
from tests.storage.log_store_contract import LogStoreContract

QUICK = DiskFaults(commit_seconds=(0.001, 0.001))


class DiskHarness(Harness):
    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__()
        self.disk = disk

    async def _open(self) -> Store:
        return await self.disk.open_store()

    async def crash(self, store: Store) -> Store:
        self.disk.crash()
        return await self.open()

    def fill_disk(self, store: Store) -> None:
        self.disk.fill()

    def empty_disk(self, store: Store) -> None:
        self.disk.make_room()

    def commits(self, store: Store) -> int:
        return self.disk.commits


class TestSimulatedDisk(LogStoreContract):
    """The contract of all backends, in virtual time."""

    @pytest.fixture(
        params=[
            DiskFaults(),
            DiskFaults(id_jump_probability=0.3, stall_probability=0.1, read_seconds=(0.0, 0.01)),
        ],
        ids=["", "slow-and-with-gaps"],
    )
    def harness(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[DiskHarness]:
        with Simulation(request.node.name) as simulation:
            monkeypatch.setattr(asyncio.events, "new_event_loop", lambda: simulation.driver.loop)
            yield DiskHarness(simulation.disk("driver", request.param))


SimulatedScenario = Callable[[Simulation, SimulatedDisk], Awaitable[None]]


def play(scenario: SimulatedScenario, faults: DiskFaults = QUICK, seed: int = 1) -> None:
    with Simulation(seed) as simulation:
        simulation.run(scenario(simulation, simulation.disk("us", faults)))  # type: ignore[arg-type]


@pytest.fixture
def disk(simulation: Simulation) -> SimulatedDisk:
    return simulation.disk("us", QUICK)


async def fill_three_logs(disk: SimulatedDisk) -> None:
    """Issue on the host ten appends of three entries to each of three logs, and ten puts of two keys."""
    store = await disk.open_store()
    logs = [await open_log(store, name) for name in "abc"]
    for number in range(10):
        for log in logs:
            log.append([b"%s%d.%d" % (log.name.encode(), number, index) for index in range(3)])
        for key in ("k", "l"):
            store.put(key, b"%d" % number)
    await asyncio.sleep(3600)


async def kill_while_it_writes(simulation: Simulation, disk: SimulatedDisk) -> Host:
    """Kill the host three commits after its start: those that create the logs. The rest is in flight."""
    host = simulation.host("us")
    host.start(fill_three_logs(disk))
    await asyncio.sleep(0.0035)
    host.kill()
    return host


def issued(log: str) -> list[bytes]:
    return [b"%s%d.%d" % (log.encode(), number, index) for number in range(10) for index in range(3)]


class TestCrash:
    def test_a_log_keeps_a_prefix_of_whole_appends(self):
        """Nothing, all, or anything between; a torn entry is cut off when the store is opened."""
        lengths: set[int] = set()
        torn = 0

        async def scenario(simulation: Simulation, disk: SimulatedDisk) -> None:
            nonlocal torn
            host = await kill_while_it_writes(simulation, disk)
            assert disk.store is None
            torn += sum(bool(log.torn) for log in disk.logs.values())
            host.boot()
            await host.ask(reopen(disk))

        async def reopen(disk: SimulatedDisk) -> None:
            store = await disk.open_store()
            for name in store.log_names():
                found = data_of(await (await open_log(store, name)).read(0, 1000, 1 << 20))
                assert found == issued(name)[: len(found)]
                assert len(found) % 3 == 0
                lengths.add(len(found) // 3)

        for seed in range(80):
            play(scenario, seed=seed)
        assert lengths == set(range(11))
        assert torn > 5

    def test_nothing_is_promised_across_logs_and_keys(self):
        """Of operations issued together, any may survive without any other."""
        survivors: set[tuple[bool, ...]] = set()

        async def scenario(simulation: Simulation, disk: SimulatedDisk) -> None:
            await kill_while_it_writes(simulation, disk)
            survivors.add((bool(disk.entries("a")), bool(disk.entries("b")), "k" in disk.values))

        for seed in range(60):
            play(scenario, seed=seed)
        assert len(survivors) == 8

    def test_ids_of_a_torn_append_are_not_used_again(self):
        gaps = 0

        async def scenario(simulation: Simulation, disk: SimulatedDisk) -> None:
            nonlocal gaps
            host = await kill_while_it_writes(simulation, disk)
            torn = {name: len(log.torn) for name, log in disk.logs.items()}
            ends = {name: log.next_entry_id for name, log in disk.logs.items()}
            host.boot()
            await host.ask(append_to_all(disk))
            for name, end in ends.items():
                assert disk.entries(name)[-1].entry_id == end + torn[name]
                gaps += bool(torn[name])

        async def append_to_all(disk: SimulatedDisk) -> None:
            store = await disk.open_store()
            for name in store.log_names():
                await (await open_log(store, name)).append([b"after"])

        for seed in range(10):
            play(scenario, seed=seed)
        assert gaps > 2

    def test_trusting_a_torn_tail_serves_it(self):
        """The safeguard can be disabled, so that other tests can show that they detect it."""
        served = 0

        async def scenario(simulation: Simulation, disk: SimulatedDisk) -> None:
            nonlocal served
            await kill_while_it_writes(simulation, disk)
            await disk.open_store()
            served += any(data_of(disk.entries(name)) != whole_appends(disk, name) for name in "abc")

        def whole_appends(disk: SimulatedDisk, name: str) -> list[bytes]:
            count = len(disk.entries(name)) // 3 * 3
            return issued(name)[:count]

        for seed in range(20):
            play(scenario, replace(QUICK, trusts_torn_tail=True), seed)
        assert served > 3

    async def test_writes_of_a_dead_program_are_not_stored(self, simulation: Simulation, disk: SimulatedDisk):
        """Their store is detached from the disk."""

        async def program(disk: SimulatedDisk, logs: list[Log]) -> None:
            logs.append(await open_log(await disk.open_store(), "t"))

        logs: list[Log] = []
        await simulation.host("us").ask(program(disk, logs))
        simulation.host("us").kill()
        with pytest.raises(StorageError, match="crashed"):
            await logs[0].append([b"ghost"])
        assert disk.entries("t") == []


class TestFaults:
    async def test_a_commit_takes_its_time_and_a_stalled_one_longer(
        self, simulation: Simulation, disk: SimulatedDisk
    ):
        """In virtual time, drawn from the range."""
        store = await disk.open_store()
        begin = simulation.now
        await store.put("k", b"v")
        assert simulation.now - begin == pytest.approx(0.001)
        disk.faults = replace(disk.faults, stall_probability=1.0, stall_seconds=(3.0, 3.0))
        await store.put("k", b"w")
        assert simulation.now - begin == pytest.approx(3.001)

    def test_a_commit_that_fails_takes_some_lanes_with_it_each_from_one_write_on(self):
        """Writes before it are stored, its own outcome is unknown, and writes after it are certainly not stored; other
        lanes go on."""
        outcomes: set[str] = set()

        async def scenario(simulation: Simulation, disk: SimulatedDisk) -> None:
            store = await disk.open_store()
            logs = [await open_log(store, name) for name in "ab"]
            disk.faults = replace(disk.faults, failure_probability=1.0)
            futures = {log.name: [log.append([b"%d" % n]) for n in range(5)] for log in logs}
            for name, appends in futures.items():
                results = await asyncio.gather(*appends, return_exceptions=True)
                outcomes.add("".join(spell(result) for result in results))
                stored = len(disk.entries(name))
                good = sum(isinstance(result, int) for result in results)
                assert stored == good or (stored == good + 1 and good < 5)
                outcomes.add("stored" if stored > good else "not stored")
            disk.faults = QUICK
            for log in logs:
                broken = any(future.exception() for future in futures[log.name])
                if broken:
                    with pytest.raises(StorageError):
                        await log.append([b"refused"])
                await (await open_log(store, log.name)).append([b"after"])
                assert data_of(disk.entries(log.name))[-1] == b"after"

        def spell(result: object) -> str:
            if isinstance(result, StorageError):
                return "-" if result.definite else "?"
            return "+"

        for seed in range(60):
            play(scenario, seed=seed)
        assert outcomes == {"+++++", "++++?", "+++?-", "++?--", "+?---", "?----", "stored", "not stored"}

    def test_a_key_whose_failed_put_was_stored_nevertheless_shows_it_to_the_next_read(self):
        found: set[bytes] = set()

        async def scenario(simulation: Simulation, disk: SimulatedDisk) -> None:
            store = await disk.open_store()
            await store.put("k", b"old")
            disk.faults = replace(disk.faults, failure_probability=1.0)
            with pytest.raises(StorageError):
                await store.put("k", b"new")
            disk.faults = QUICK
            value = store.get("k")
            assert value == disk.values["k"]
            found.add(value.value)
            await store.put("k", b"newer", expected_version=value.version)

        for seed in range(20):
            play(scenario, seed=seed)
        assert found == {b"old", b"new"}

    def test_a_disk_has_its_capacity(self):
        """A write that does not fit is certainly not stored; trimming makes room."""

        async def scenario(simulation: Simulation, disk: SimulatedDisk) -> None:
            store = await disk.open_store()
            log = await open_log(store, "t")
            await log.append([bytes(90)])
            with pytest.raises(StorageFull) as full:
                await log.append([bytes(20)])
            assert full.value.definite
            assert disk.used_bytes == 90
            log = await open_log(store, "t")
            await log.trim(log.next_entry_id)
            await log.append([bytes(20)])

        play(scenario, replace(QUICK, capacity_bytes=100))

    def test_the_same_seed_gives_the_same_disk(self):
        """Each disk has its own random numbers: another disk in the world changes nothing."""

        def survivors(seed: int, *, with_another: bool) -> list[object]:
            kept: list[object] = []

            async def scenario(simulation: Simulation, disk: SimulatedDisk) -> None:
                if with_another:
                    simulation.host("eu").start(fill_three_logs(simulation.disk("eu")))
                await kill_while_it_writes(simulation, disk)
                kept.extend(log.entries for log in disk.logs.values())

            play(scenario, seed=seed)
            return kept

        for seed in range(5):
            assert survivors(seed, with_another=False) == survivors(seed, with_another=True)


async def test_a_store_belongs_to_the_disk_until_it_is_closed(simulation: Simulation, disk: SimulatedDisk):
    """S6: a second owner is rejected."""
    store = await disk.open_store()
    with pytest.raises(StorageError, match="in use"):
        await disk.open_store()
    await store.close()
    assert await disk.open_store() is not store


def test_a_log_has_no_bytes_of_entries_that_a_failed_trim_removed():
    """A caller whose trim failed trims again, and nothing is left to remove: the size must not stay as it was."""

    async def scenario(simulation: Simulation, disk: SimulatedDisk) -> None:
        log = await open_log(await disk.open_store(), "a")
        await log.append([b"1234"] * 3)
        disk.faults = replace(QUICK, failure_probability=1.0)
        with pytest.raises(StorageError):
            await log.trim(3)
        disk.repair()
        await log.append([b"56"])
        await log.trim(3)
        assert (log.first_entry_id, log.size_bytes) == (3, 2)

    for seed in range(20):
        play(scenario, seed=seed)
