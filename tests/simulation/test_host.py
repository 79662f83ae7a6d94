"""Hosts run, are frozen, die and are started again."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from emulator.simulation.host import Host, HostDied, HostState
from emulator.simulation.simulation import Simulation


async def count_seconds(seen: list[int]) -> None:
    while True:
        await asyncio.sleep(1)
        seen.append(len(seen) + 1)


class TestKill:
    async def test_a_killed_program_runs_no_finally(self, simulation: Simulation):
        """Nothing of it runs any more: no `finally`, no handler, no timer, no task, at whatever await it was."""
        seen: list[str] = []
        tasks: list[asyncio.Task[None]] = []

        async def program() -> None:
            loop = asyncio.get_running_loop()
            loop.call_later(10, seen.append, "timer")
            tasks.append(asyncio.create_task(other()))
            try:
                async with asyncio.timeout(20):
                    await asyncio.sleep(10)
            except BaseException:
                seen.append("except")
                raise
            finally:
                seen.append("finally")

        async def other() -> None:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.Event().wait()
            seen.append("other")

        us = simulation.host("us")
        us.start(program())
        await asyncio.sleep(5)
        us.kill()
        gc.collect()
        await asyncio.sleep(50)
        assert seen == []
        assert seen == []

    def test_its_tasks_cause_no_warnings(self, capsys: pytest.CaptureFixture[str]):
        """No "Task was destroyed", no "never awaited", neither then nor at the end of the simulation."""

        async def program() -> None:
            other = asyncio.create_task(asyncio.sleep(100))
            try:
                await other
            finally:
                await asyncio.sleep(1)  # not possible while a coroutine is closed

        async def scenario() -> None:
            us = simulation.host("us")
            us.start(program())
            await asyncio.sleep(1)
            us.start(program())  # will not have had its first step
            us.kill()
            us.start(program())
            await asyncio.sleep(1)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Simulation(1) as simulation:
                simulation.run(scenario())
            gc.collect()
        assert capsys.readouterr() == ("", "")

    async def test_a_program_can_die_in_the_middle_of_its_own_turn(self, simulation: Simulation):
        """Callbacks behind it do not run, and its later sends reach no host."""
        seen: list[str] = []

        async def program(us: Host) -> None:
            loop = asyncio.get_running_loop()
            loop.call_soon(us.kill)
            loop.call_soon(seen.append, "behind it")
            await asyncio.sleep(0)
            seen.append("the task")

        simulation.host("us").start(program(simulation.host("us")))
        await asyncio.sleep(1)
        assert seen == []

    async def test_a_dead_loop_takes_callbacks_and_forgets_them(self, simulation: Simulation):
        """Also while another object still holds the loop."""
        seen: list[str] = []

        us = simulation.host("us")
        loop = us.loop
        us.kill()
        loop.call_soon(seen.append, "soon")
        loop.call_later(1, seen.append, "later")
        await asyncio.sleep(5)
        assert seen == []

    async def test_a_killed_host_can_be_started_again_and_remembers_nothing(self, simulation: Simulation):
        """It has a new loop; timers of the old one do not fire."""
        incarnations: list[tuple[int, float]] = []

        async def program(us: Host) -> None:
            incarnations.append((us.incarnation, us.random.random()))
            await asyncio.sleep(3)
            incarnations.append((-1, 0))

        us = simulation.host("us")
        for _ in range(3):
            us.start(program(us))
            await asyncio.sleep(1)
            us.kill()
            assert us.state is HostState.DOWN
            us.kill()  # nothing to do
        await asyncio.sleep(10)
        assert [number for number, _ in incarnations] == [0, 1, 2]
        assert len({draw for _, draw in incarnations}) == 3

    async def test_a_caller_that_waits_for_a_response_gets_the_death_as_an_error(
        self, simulation: Simulation
    ):
        us = simulation.host("us")
        simulation.at(2, us.kill)
        with pytest.raises(HostDied):
            await us.ask(asyncio.sleep(10))
        assert simulation.now == 2
        with pytest.raises(HostDied):
            await us.ask(asyncio.sleep(10))


class TestPause:
    async def test_a_paused_program_does_nothing_while_time_goes_on(self, simulation: Simulation):
        seen: list[int] = []

        us = simulation.host("us")
        us.start(count_seconds(seen))
        await asyncio.sleep(3.5)
        us.pause()
        us.pause()  # nothing to do
        await asyncio.sleep(10)
        assert seen == [1, 2, 3]
        us.resume()
        await asyncio.sleep(1.5)
        assert seen == [1, 2, 3, 4, 5]

    async def test_what_became_ready_meanwhile_runs_before_overdue_timers(self, simulation: Simulation):
        """A program that wakes up polls its sockets first."""
        seen: list[str] = []

        us = simulation.host("us")
        us.loop.call_later(1, seen.append, "timer")
        us.pause()
        await asyncio.sleep(5)
        us.loop.call_soon(seen.append, "arrived")
        us.resume()
        us.resume()  # nothing to do
        await asyncio.sleep(1)
        assert seen == ["arrived", "timer"]

    async def test_a_paused_program_can_be_killed(self, simulation: Simulation):
        """Resuming it does not bring it back to life."""
        seen: list[int] = []

        us = simulation.host("us")
        us.start(count_seconds(seen))
        us.pause()
        us.kill()
        us.resume()
        assert us.state is HostState.DOWN
        await asyncio.sleep(5)
        assert seen == []

    async def test_a_program_can_be_paused_in_its_own_turn(self, simulation: Simulation):
        """The iteration ends; the next one runs after the pause."""
        seen: list[float] = []

        async def program(us: Host) -> None:
            us.pause()
            await asyncio.sleep(0)
            seen.append(simulation.now)

        us = simulation.host("us")
        us.start(program(us))
        await asyncio.sleep(7)
        us.resume()
        await asyncio.sleep(1)
        assert seen == [7]


class TestAsk:
    async def test_an_answer_comes_from_the_hosts_own_loop(self, simulation: Simulation):
        async def name() -> str:
            await asyncio.sleep(1)
            return asyncio.get_running_loop().name  # type: ignore[attr-defined,no-any-return]

        async def fail() -> None:
            raise ZeroDivisionError

        assert await simulation.host("us").ask(name()) == "us"
        assert await name() == "driver"
        with pytest.raises(ZeroDivisionError):
            await simulation.host("us").ask(fail())
