"""Virtual time, and asyncio's guarantees under it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import signal
import threading
import time
from collections.abc import AsyncIterator

import pytest

from emulator.simulation import virtual_time
from emulator.simulation.simulation import Simulation
from emulator.simulation.virtual_time import Deadlock, Livelock, OutOfTime, UnhandledError


def now() -> float:
    return asyncio.get_running_loop().time()


class TestTime:
    def test_time_jumps_to_the_next_timer(self):
        """A day of waiting takes no real time."""

        async def scenario() -> float:
            await asyncio.sleep(86_400)
            return now()

        begin = time.monotonic()
        with Simulation(1) as simulation:
            assert simulation.run(scenario(), within_seconds=100_000) == 86_400
        assert time.monotonic() - begin < 5

    async def test_timers_come_in_the_order_of_their_times_and_equal_ones_as_they_were_set(
        self, simulation: Simulation
    ):
        seen: list[str] = []

        loop = asyncio.get_running_loop()
        for name, delay in [("c", 2.0), ("a", 1.0), ("d", 2.0), ("b", 1.0), ("e", 2.0)]:
            loop.call_later(delay, seen.append, name)
        await asyncio.sleep(3)
        assert seen == list("abcde")

    async def test_a_timer_in_the_past_is_due_at_once(self, simulation: Simulation):
        """Time never goes back."""
        await asyncio.sleep(5)
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_at(1, done.set_result, None)
        await done
        assert now() == 5

    def test_a_cancelled_timer_is_no_moment(self):
        async def scenario() -> None:
            asyncio.get_running_loop().call_later(50, print).cancel()
            async with asyncio.timeout(60):
                await asyncio.sleep(1)
            await asyncio.get_running_loop().create_future()

        with Simulation(1) as simulation, pytest.raises(Deadlock, match=r"at 1\.0"):
            simulation.run(scenario())

    async def test_cancelled_timers_do_not_pile_up(self, simulation: Simulation):
        """Programs set far more deadlines than expire."""
        for _ in range(10_000):
            asyncio.get_running_loop().call_later(1000, print).cancel()
        assert len(simulation.time.moments) < 300

    def test_the_driver_can_do_something_at_a_moment(self):
        seen: list[float] = []
        with Simulation(1) as simulation:
            simulation.at(3, lambda: seen.append(simulation.now))
            simulation.run_for(2)
            assert seen == []
            simulation.run_for(2)
            assert seen == [3]
            assert simulation.now == 4

    def test_the_main_program_can_wait_for_a_condition(self):
        things: list[int] = []

        async def scenario() -> None:
            asyncio.get_running_loop().call_later(2, things.append, 1)
            await simulation.until(lambda: bool(things))
            assert 2 <= now() < 2.1
            await simulation.until(lambda: len(things) == 2, within_seconds=5)

        with (
            Simulation(1) as simulation,
            pytest.raises(TimeoutError, match="condition not met within 5 virtual seconds"),
        ):
            simulation.run(scenario())


class TestWhoIsNext:
    def test_within_one_host_callbacks_run_in_the_order_in_which_they_were_called(self):
        """As asyncio guarantees, whatever the seed."""
        for seed in range(20):
            seen: list[int] = []

            async def program(seen: list[int] = seen) -> None:
                loop = asyncio.get_running_loop()
                for number in range(10):
                    loop.call_soon(seen.append, number)

            with Simulation(seed) as simulation:
                simulation.host("a").start(program())
                simulation.host("b").start(program([]))
                simulation.run_for(1)
            assert seen == list(range(10))

    def test_whose_turn_it_is_is_drawn_from_the_seed(self):
        """Every order of three hosts occurs, and the same one for the same seed."""

        def order(seed: int) -> str:
            seen: list[str] = []

            async def program(name: str) -> None:
                seen.append(name)

            with Simulation(seed) as simulation:
                for name in "abc":
                    simulation.host(name).start(program(name))
                simulation.run_for(1)
            return "".join(seen)

        orders = [order(seed) for seed in range(60)]
        assert set(orders) == {"abc", "acb", "bac", "bca", "cab", "cba"}
        assert orders == [order(seed) for seed in range(60)]


class TestEndings:
    def test_a_deadlock_without_pending_events_names_each_task_and_its_await(self):
        async def stuck() -> None:
            await asyncio.get_running_loop().create_future()

        async def scenario() -> None:
            await stuck()

        with Simulation(1) as simulation:
            simulation.host("us").start(stuck(), name="broker")
            with pytest.raises(Deadlock) as deadlock:
                simulation.run(scenario())
        line = stuck.__code__.co_firstlineno + 1
        assert f"main at {__file__}:{line}" in str(deadlock.value)
        assert f"broker at {__file__}:{line}" in str(deadlock.value)

    def test_a_deadlock_names_paused_and_dead_hosts(self):
        """They are the most likely causes."""

        async def scenario() -> None:
            simulation.host("us").pause()
            simulation.host("eu").kill()
            await asyncio.get_running_loop().create_future()

        with Simulation(1) as simulation:
            simulation.host("us")
            simulation.host("eu")
            with pytest.raises(Deadlock) as deadlock:
                simulation.run(scenario())
        assert "us (its program is frozen" in str(deadlock.value)
        assert "eu (its program is dead" in str(deadlock.value)

    def test_a_main_program_that_does_not_end_in_time_is_out_of_time(self):
        """Although timers keep firing."""

        async def scenario() -> None:
            while True:
                await asyncio.sleep(1)

        with Simulation(1) as simulation, pytest.raises(OutOfTime, match="within 10 s"):
            simulation.run(scenario(), within_seconds=10)

    async def test_time_creeps_on_under_a_program_that_spins(self, simulation: Simulation):
        """So that it sees the end of what it waits for."""
        timer = asyncio.ensure_future(asyncio.sleep(0.1))
        while not timer.done():
            await asyncio.sleep(0)
        assert now() == pytest.approx(0.1, abs=0.001)

    def test_a_program_that_spins_for_ever_is_a_livelock(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(virtual_time, "BUSY_TURNS_MAX", 5000)

        async def busy() -> None:
            while True:
                await asyncio.sleep(0)

        with Simulation(1) as simulation:
            simulation.host("us").start(busy())
            with pytest.raises(Livelock, match="us is busy"):
                simulation.run_for(1)

    def test_an_exception_of_the_main_program_is_raised_by_run(self):
        async def scenario() -> None:
            raise KeyError("mine")

        with Simulation(1) as simulation, pytest.raises(KeyError, match="mine"):
            simulation.run(scenario())

    def test_an_unhandled_exception_ends_the_run_and_names_the_host(self):
        """What asyncio would only have logged is an error here."""

        def fall() -> None:
            raise ValueError("oops")

        async def program() -> None:
            asyncio.get_running_loop().call_later(2, fall)

        with Simulation(1) as simulation:
            simulation.host("us").start(program())
            with pytest.raises(UnhandledError, match=r"host 'us' at 2\.0.*oops"):
                simulation.run_for(10)

    def test_a_task_whose_exception_is_never_retrieved_ends_the_run(self):
        """As soon as the task is garbage."""

        async def program() -> None:
            raise ValueError("oops")

        with Simulation(1) as simulation:
            simulation.host("us").start(program())
            with pytest.raises(UnhandledError, match="never retrieved"):
                simulation.run_for(10)

    def test_complaints_can_be_gathered_instead(self):
        """`strict=False` collects errors for callers that check them afterwards."""

        async def program() -> None:
            raise ValueError("oops")

        with Simulation(1, strict=False) as simulation:
            simulation.host("us").start(program())
            simulation.run_for(10)
            assert [(c.at_seconds, c.host, str(c.error)) for c in simulation.program_errors] == [
                (0.0, "us", "oops")
            ]

    def test_the_loop_calls_the_exception_handler_of_the_program(self):
        received: list[str] = []

        async def program() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: received.append(str(context["exception"])))
            loop.call_soon([].pop)

        with Simulation(1) as simulation:
            simulation.host("us").start(program())
            simulation.run_for(1)
        assert received == ["pop from empty list"]


class TestAsyncio:
    """The standard library on top of the loop."""

    async def test_its_tools_work(self, simulation: Simulation):
        """Task groups, queues, locks, deadlines, shields, names and contexts."""
        variable = contextvars.ContextVar("variable", default="unset")

        async def collect(queue: asyncio.Queue[int], count: int) -> list[int]:
            return [await queue.get() for _ in range(count)]

        async def read() -> tuple[str, str]:
            task = asyncio.current_task()
            assert task is not None
            return variable.get(), task.get_name()

        queue: asyncio.Queue[int] = asyncio.Queue(2)

        async def produce() -> None:
            for number in range(10):
                await queue.put(number)
                await asyncio.sleep(number / 10)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            consumer = group.create_task(collect(queue, 10))
        assert consumer.result() == list(range(10))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.shield(asyncio.sleep(10))
        variable.set("set")
        assert await asyncio.create_task(read(), name="reader") == ("set", "reader")

    async def test_an_executor_is_an_ordered_step_on_the_same_thread(self, simulation: Simulation):
        """Calls keep their order, take a little time, and fail as they would."""
        seen: list[tuple[int, int]] = []

        loop = asyncio.get_running_loop()
        calls = [
            loop.run_in_executor(None, lambda n=n: seen.append((n, threading.get_ident()))) for n in range(20)
        ]
        assert seen == []
        await asyncio.gather(*calls)
        assert 0 < now() < 0.1
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        assert seen == [(number, threading.get_ident()) for number in range(20)]

    async def test_threadsafe_calls_run_and_calls_from_other_threads_are_rejected(
        self, simulation: Simulation
    ):
        loop = asyncio.get_running_loop()
        called = asyncio.Event()
        loop.call_soon_threadsafe(called.set)
        await called.wait()
        errors: list[BaseException] = []

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(called.clear)
            except AssertionError as error:
                errors.append(error)

        thread = threading.Thread(target=intrude)
        with simulation.outside():
            thread.start()
            thread.join()
        assert len(errors) == 1

    async def test_a_signal_reaches_its_handler(self, simulation: Simulation):
        received: list[int] = []

        async def program() -> None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, received.append, 15)

        us, eu = simulation.host("us"), simulation.host("eu")
        us.start(program())
        await asyncio.sleep(1)
        us.signal(signal.SIGTERM)
        eu.signal(signal.SIGTERM)
        await asyncio.sleep(1)
        assert (us.state.name, eu.state.name) == ("UP", "DOWN")
        assert received == [15]

    def test_an_asynchronous_generator_that_is_dropped_is_closed_on_its_loop(self):
        """Its `finally` runs, as asyncio does it."""
        closed: list[str] = []

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                await asyncio.sleep(1)
                closed.append(asyncio.get_running_loop().name)  # type: ignore[attr-defined]

        async def program() -> None:
            async for _ in numbers():
                break

        with Simulation(1) as simulation:
            simulation.host("us").start(program())
            simulation.run_for(5)
        assert closed == ["us"]

    def test_asyncio_can_run_the_drivers_loop_itself(self):
        """So that tests written for `asyncio.run` can run in virtual time."""

        async def main() -> float:
            left_behind = asyncio.create_task(asyncio.sleep(10_000))
            await asyncio.sleep(100)
            assert not left_behind.done()
            return now()

        with (
            Simulation(1) as simulation,
            asyncio.Runner(loop_factory=lambda: simulation.driver.loop) as runner,
        ):
            assert runner.run(main()) == 100

    def test_garbage_is_not_collected_at_moments_of_its_own(self):
        """Finalisers run when the simulation decides; afterwards the former setting is restored."""

        async def scenario() -> bool:
            return gc.isenabled()

        assert gc.isenabled()
        with Simulation(1) as simulation:
            assert not simulation.run(scenario())
        assert gc.isenabled()
