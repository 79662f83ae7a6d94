"""Plays a scenario on any runtime, and writes down what happened when.

    result = await play(scenario, runtime, observer)

The runner knows regions only by the runtime contract and actors only by `workload.py`, and lets time pass
only through its stage's clock: the same story runs with processes and real clients, or simulated.

A play ends in one of two ways: every step came true, or one did not and the rest was not tried. Either way
the actors leave, and what they asked and were told is in the run directory to be judged; facts about the
story itself (steps, faults, phases) go to `history/scenario.jsonl`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, assert_never, cast

from emulator.errors import RuntimeFailure
from emulator.history import latency_detail, skew_detail
from emulator.model import TopicName
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.scenarios.asking import unwelcome, why_not_said
from emulator.scenarios.conditions import ProgramDid, Published, Received, RegionSays, SubscriptionExists
from emulator.scenarios.hosts import HostDid, TopicsOwned
from emulator.scenarios.scenario import Scenario, Step
from emulator.scenarios.stage import Stage, real_stage
from emulator.scenarios.steps import (
    AdminCall,
    AdminCalls,
    Begin,
    Drain,
    Finish,
    Heal,
    Latency,
    Lose,
    Move,
    OnLink,
    OnRegion,
    Phase,
    Skew,
    Wait,
)
from emulator.scenarios.topics import Survey, survey
from emulator.scenarios.watching import Observer, PlayResult, Snapshot
from emulator.scenarios.workload import (
    Actor,
    ActorFailure,
    ConsumerPart,
    HostActor,
    HostPart,
    HostVerb,
    Program,
    ProgramPart,
    ProgramVerb,
)

POLL_SECONDS = 0.05
"""How often a condition is looked at."""


LOOK_SECONDS = 0.25
"""How often the observer is shown how things stand."""


CALM_LOOKS = 2
"""A drain is over when so many looks in a row find nothing left: regions are not all asked at one moment."""


class StepFailed(Exception):
    """A step did not come true; the message says how far it came."""


async def play(
    scenario: Scenario, runtime: Runtime, observer: Observer, stage: Stage | None = None
) -> PlayResult:
    """Play a scenario on regions that are up. Cancelling it makes the actors leave first."""
    return await _Play(scenario, runtime, observer, stage or real_stage(runtime)).perform()


class _Play:
    def __init__(self, scenario: Scenario, runtime: Runtime, observer: Observer, stage: Stage) -> None:
        self._scenario = scenario
        self._runtime = runtime
        self._observer = observer
        self._stage = stage
        self._clock = stage.clock
        self._actors: dict[str, Actor] = {}
        """Those told to begin, in that order."""
        self._finished: set[str] = set()
        self._steps_done = 0
        self._history = stage.open_history(runtime.run_dir)

    async def perform(self) -> PlayResult:
        began = self._clock.now()
        self._observer.play_began(self._scenario)
        self._fact("phase", detail=f"play of {self._scenario.name} begins")
        ending = "interrupted"
        try:
            async with self._observed(began):
                failure = await self._take_steps()
                ending = failure or "every step came true"
                await self._curtain()
        finally:
            await self._curtain()
            self._account_for_programs()
            self._fact("phase", detail=f"play of {self._scenario.name} ends: {ending}")
            self._history.close()
        result = PlayResult(
            scenario=self._scenario,
            run_dir=self._runtime.run_dir,
            seconds=self._clock.now() - began,
            steps_done=self._steps_done,
            failure=failure,
            counts={name: actor.counts for name, actor in self._actors.items()},
        )
        self._observer.play_ended(result)
        return result

    async def _take_steps(self) -> str | None:
        """All steps, or those up to the first that fails, and then its sentence."""
        for step in self._scenario.steps:
            began = self._clock.now()
            self._observer.step_began(step)
            self._fact("step", detail=f"step {step.number} begins: {step.text}")
            failure = await self._attempt(step)
            self._observer.step_ended(step, self._clock.now() - began, failure)
            if failure is not None:
                self._fact("step", detail=f"step {step.number} failed: {step.text}", error=failure)
                return failure
            self._fact("step", detail=f"step {step.number} done: {step.text}")
            self._steps_done += 1
        return None

    async def _attempt(self, step: Step) -> str | None:
        try:
            await self._take(step)
        except (StepFailed, ActorFailure, RuntimeFailure) as reason:
            return f"{step}: {reason}"
        return None

    async def _take(self, step: Step) -> None:
        match step.action:
            case Phase(text=text):
                self._fact("phase", detail=text)
            case Wait(time=seconds):
                await self._clock.sleep(seconds)
            case Begin(within=seconds):
                await self._begin(step.actors, seconds)
            case Finish(within=seconds):
                await self._finish(step.actors, seconds)
            case Move() as move:
                await self._move(move)
            case OnRegion(program=str(program)) as change:
                await self._change_program(step.verb, program, change.within)
            case OnRegion(host=tuple(hosts)) as change:
                await self._change_hosts(step.verb, hosts, change.within)
            case OnRegion() as change:
                await self._change_region(step.verb, change)
            case Latency() as change:
                await self._change_latency(change)
            case OnLink() as change:
                await self._change_link(step.verb, change)
            case Heal() as heal:
                await self._heal(heal)
            case Published() | Received() as condition:
                await self._wait_for_count(condition)
            case ProgramDid() as condition:
                await self._wait_for_program(condition)
            case SubscriptionExists() as condition:
                await self._wait_for_subscription(condition)
            case HostDid() as condition:
                await self._wait_for_host(condition)
            case TopicsOwned(within=seconds):
                await self._until(seconds, self._unowned)
            case Skew() as skew:
                await self._skew(skew)
            case AdminCalls(calls=calls):
                await self._call(calls)
            case RegionSays() as condition:
                await self._wait_for_answer(condition)
            case Drain(within=seconds):
                await self._drain(seconds)
            case unknown:
                assert_never(unknown)

    # --- actors ---------------------------------------------------------------------------------------

    async def _begin(self, names: tuple[str, ...], seconds: float) -> None:
        regions = await self._regions()
        for name in names:
            part = self._scenario.part(name)
            self._actors[name] = self._stage.hire(part)
            if not isinstance(part, ProgramPart):
                self._fact("hire", file=name)

        async def begin(actor: Actor) -> None:
            await actor.begin(regions[actor.part.region].service_url)

        await self._each_in_time(seconds, names, begin, lambda actor: f"no way into {actor.part.region}")
        for name in names:  # one after the other: who comes first is no chance
            if isinstance(self._scenario.part(name), HostPart):
                await self._line_up(name, seconds)

    async def _line_up(self, name: str, seconds: float) -> None:
        host = cast(HostActor, self._actors[name])
        await self._in_time(seconds, host.line_up(), lambda: f"{name} has no place in some lines")

    async def _finish(self, names: tuple[str, ...], seconds: float) -> None:
        self._finished.update(names)
        await self._each_in_time(
            seconds,
            names,
            lambda actor: actor.finish(),
            lambda actor: f"still {actor.counts.pending} publishes without outcome",
        )

    async def _move(self, move: Move) -> None:
        actor = self._actors[move.actor]
        ends = {"region": move.to, "other_region": actor.counts.region}
        service_url = (await self._regions())[move.to].service_url
        self._fact("move", **ends, detail=f"{move.actor} begins to move")
        await self._each_in_time(
            move.within,
            (move.actor,),
            lambda actor: actor.move(move.to, service_url),
            lambda _: f"no way into {move.to}",
        )
        self._fact("move", **ends, detail=f"{move.actor} has moved")

    async def _curtain(self) -> None:
        """Everybody leaves; twice is harmless."""
        await asyncio.gather(*(actor.leave() for actor in self._actors.values()))

    def _account_for_programs(self) -> None:
        """Whose history there is shows in the end only: a program need not write one."""
        for name in self._programs():
            if self._program(name).has_history:
                self._fact("hire", file=name)
            else:
                self._fact("note", detail=f"{name} left no history of its own")

    def _programs(self) -> Iterator[str]:
        return (name for name, actor in self._actors.items() if isinstance(actor.part, ProgramPart))

    def _program(self, name: str) -> Program:
        return cast(Program, self._actors[name])

    async def _change_program(self, verb: str, name: str, seconds: float) -> None:
        program = self._program(name)
        done = program.change(cast(ProgramVerb, verb))
        await self._in_time(seconds, done, lambda: f"{name} is not done with it")
        self._fact("note", region=program.counts.region, detail=f"{verb} {name}")

    async def _change_hosts(self, verb: str, names: tuple[str, ...], seconds: float) -> None:
        done: list[str] = []

        async def one(name: str) -> None:
            # Before: others may have taken over when it is done.
            self._fact("note", region=self._actors[name].counts.region, detail=f"{verb} {name}")
            await cast(HostActor, self._actors[name]).change(cast(HostVerb, verb))
            done.append(name)

        async def all_of_them() -> None:
            await asyncio.gather(*map(one, names))

        def who_is_late() -> str:
            return f"not done to {', '.join(name for name in names if name not in done)}"

        await self._in_time(seconds, all_of_them(), who_is_late)

    # --- regions and links ----------------------------------------------------------------------------

    async def _regions(self) -> dict[str, RegionStatus]:
        return {region.name: region for region in (await self._runtime.status()).regions}

    async def _change_region(self, verb: str, change: OnRegion) -> None:
        verbs = {
            "kill": self._runtime.kill,
            "lose": self._runtime.lose,
            "stop": self._runtime.stop,
            "start": self._runtime.start,
            "restart": self._runtime.restart,
            "pause": self._runtime.pause,
            "resume": self._runtime.resume,
        }
        regions = change.region or tuple(
            region.name for region in self._runtime.topology.regions if region.cluster == change.cluster
        )
        done: list[str] = []

        async def one(region: str) -> None:
            await verbs[verb](region)
            done.append(region)
            self._fact(verb, region=region)

        async def all_of_them() -> None:
            await asyncio.gather(*map(one, regions))

        await self._in_time(
            change.within,
            all_of_them(),
            lambda: f"not done to {', '.join(region for region in regions if region not in done)}",
        )
        if isinstance(change, Lose) and change.with_store and change.cluster is not None:
            await self._runtime.lose_store(change.cluster)

    async def _change_link(self, verb: str, change: OnLink) -> None:
        verbs = {"cut": self._runtime.cut, "hold": self._runtime.hold}
        source, target = change.ends
        done = verbs[verb](source, target, one_way=change.one_way)
        await self._in_time(change.within, done, lambda: "not done")
        way = "one way" if change.one_way else "both ways"
        self._fact(verb, region=source, other_region=target, detail=way)

    async def _change_latency(self, change: Latency) -> None:
        source, target = change.ends
        milliseconds = change.time * 1000
        done = self._runtime.latency(
            source,
            target,
            milliseconds,
            jitter_ms=None if change.jitter is None else change.jitter * 1000,
            one_way=change.one_way,
        )
        await self._in_time(change.within, done, lambda: "not done")
        detail = latency_detail(milliseconds, one_way=change.one_way)
        self._fact("latency", region=source, other_region=target, detail=detail)

    async def _heal(self, heal: Heal) -> None:
        await self._in_time(heal.within, self._runtime.heal(*heal.between), lambda: "not done")
        source, target = heal.between or (None, None)
        self._fact("heal", region=source, other_region=target, detail=None if source else "everything")

    # --- clocks and policies ---

    async def _skew(self, skew: Skew) -> None:
        done = self._runtime.skew(skew.region, skew.by)
        await self._in_time(skew.within, done, lambda: "not done")
        self._fact("skew", region=skew.region, detail=skew_detail(skew.by))

    async def _call(self, calls: tuple[AdminCall, ...]) -> None:
        regions = await self._regions()

        async def all_of_them() -> None:
            refused = await unwelcome(self._stage.call_region, regions, calls)
            if refused:
                raise StepFailed("; ".join(refused))

        for one in calls:
            self._fact("note", region=one.region, detail=f"{one.method} {one.path}")
        seconds = max(one.within for one in calls)
        await self._in_time(seconds, all_of_them(), lambda: "not every region has answered")

    async def _wait_for_answer(self, condition: RegionSays) -> None:
        async def missing() -> str | None:
            region = (await self._regions())[condition.region]
            return await why_not_said(self._stage.call_region, region, condition)

        await self._until(condition.within, missing)

    # --- conditions -----------------------------------------------------------------------------------

    async def _wait_for_count(self, condition: Published | Received) -> None:
        def count() -> int:
            if isinstance(condition, Published):
                return self._actors[condition.producer].counts.ok
            return self._actors[condition.consumer].counts.received

        before = count() if condition.counts_from_now else 0

        async def missing() -> str | None:
            so_far = count() - before
            return None if so_far >= condition.goal else f"{so_far} of {condition.goal}"

        await self._until(condition.within, missing)

    async def _wait_for_program(self, condition: ProgramDid) -> None:
        program = self._program(condition.program)

        def count() -> int:
            if condition.region is None:
                return program.counts.ok if condition.counts_publishes else program.counts.received
            there = program.published_in if condition.counts_publishes else program.received_in
            return there(condition.region)

        before = count() if condition.counts_from_now else 0

        async def missing() -> str | None:
            if condition.exit_code is not None:
                ended = program.exit_code
                return None if ended == condition.exit_code else _how_it_ended(condition.program, ended)
            so_far = count() - before
            return None if so_far >= condition.goal else f"{so_far} of {condition.goal}"

        await self._until(condition.within, missing)

    async def _wait_for_host(self, condition: HostDid) -> None:
        async def missing() -> str | None:
            holds = len(self._actors[condition.host].counts.holds)
            return (
                None if holds == condition.holds else f"{condition.host} holds {holds}, not {condition.holds}"
            )

        await self._until(condition.within, missing)

    async def _unowned(self) -> str | None:
        """The first topic that nobody owns, by region: each region has owners of its own (X5)."""
        hosts = [actor for actor in self._actors.values() if isinstance(actor.part, HostPart)]
        owned = {(host.part.region, topic) for host in hosts for topic in host.counts.holds}
        wanted = dict.fromkeys((host.part.region, topic) for host in hosts for topic in host.part.topics)
        without = [f"{topic} in {region}" for region, topic in wanted if (region, topic) not in owned]
        return f"{len(without)} topics have no owner, {without[0]} for one" if without else None

    async def _wait_for_subscription(self, condition: SubscriptionExists) -> None:
        region, subscription = condition.exists_in, condition.subscription
        topics = self._scenario.topics_of(subscription)

        async def missing() -> str | None:
            found = await survey((await self._regions()).values(), self._stage.read_topics)
            if all(found.knows(region, topic, subscription) for topic in topics):
                return None
            return "; ".join(
                [f"not there; {region} does not know it", *found.silent, *found.excuses(subscription)]
            )

        await self._until(condition.within, missing)

    async def _drain(self, seconds: float) -> None:
        calm_looks = 0

        async def missing() -> str | None:
            nonlocal calm_looks
            reason = await self._first_undrained()
            calm_looks = 0 if reason else calm_looks + 1
            return reason or ("calm for a moment only" if calm_looks < CALM_LOOKS else None)

        await self._until(seconds, missing)

    async def _first_undrained(self) -> str | None:
        """The first reason found why not everything has arrived; None when there is none."""
        for name, actor in self._actors.items():
            if actor.counts.publishing or actor.counts.pending:
                return f"{name} still publishes, {actor.counts.pending} without outcome"
        regions = (await self._regions()).values()
        lost = {region.name for region in regions if region.state == "lost"}
        left = [region for region in regions if region.name not in lost]
        found = await survey(left, self._stage.read_topics)
        return next(chain(found.silent, self._undelivered(found, lost), self._unread(found)), None)

    def _undelivered(self, found: Survey, lost: Collection[str]) -> Iterator[str]:
        """What is owed to a lost region, and what only a lost region has, is not waited for."""
        for topic in sorted(
            {topic for actor in self._actors.values() if actor.counts.ok for topic in actor.part.topics}
        ):
            namespace = TopicName.parse(topic).full_namespace
            sharers = (each.regions for each in self._runtime.topology.namespaces if each.name == namespace)
            yield from found.strangers(topic, [name for name in next(sharers, ()) if name not in lost])
            yield from found.debts(topic, forgiven=lost)

    def _unread(self, found: Survey) -> Iterator[str]:
        for name, actor in self._actors.items():
            part = actor.part
            if isinstance(part, ConsumerPart) and name not in self._finished:
                yield from found.unread(actor.counts.region, part.topic, part.subscription)
            if isinstance(part, ProgramPart) and name not in self._finished:
                for region, topic, subscription in self._program(name).readings():
                    yield from found.unread(region, topic, subscription)

    # --- time -----------------------------------------------------------------------------------------

    async def _until(self, seconds: float, missing: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until nothing is missing any more. StepFailed at the deadline, or when an actor is gone."""
        deadline = self._clock.now() + seconds
        while (lacking := await missing()) is not None:
            for actor in self._actors.values():
                if actor.problem is not None:
                    raise StepFailed(f"{lacking} when {actor.problem}")
            left = deadline - self._clock.now()
            if left <= 0:
                raise StepFailed(f"{lacking} within {seconds:g} s")
            await self._clock.sleep(min(POLL_SECONDS, left))

    async def _in_time(self, seconds: float, work: Awaitable[None], so_far: Callable[[], str]) -> None:
        """Do `work`, which is cancelled at its deadline: StepFailed then."""
        task = asyncio.ensure_future(work)
        deadline = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({task, deadline}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise StepFailed(f"{so_far()} within {seconds:g} s")
            await task
        finally:
            task.cancel()
            deadline.cancel()
            await asyncio.gather(task, deadline, return_exceptions=True)

    async def _each_in_time(
        self,
        seconds: float,
        names: tuple[str, ...],
        do: Callable[[Actor], Awaitable[None]],
        so_far: Callable[[Actor], str],
    ) -> None:
        """Have several actors do something at once; StepFailed says who has not done it in time."""
        waiting = dict.fromkeys(names)

        async def one(name: str) -> None:
            await do(self._actors[name])
            del waiting[name]

        async def all_of_them() -> None:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(one(name))

        def who_is_late() -> str:
            return ", ".join(f"{name}: {so_far(self._actors[name])}" for name in waiting)

        try:
            await self._in_time(seconds, all_of_them(), who_is_late)
        except* ActorFailure as failures:
            raise StepFailed("; ".join(str(failure) for failure in failures.exceptions)) from None

    # --- what others see ------------------------------------------------------------------------------

    def _fact(self, op: str, **fields: Any) -> None:
        self._history.write(op, "fact", **fields)

    @asynccontextmanager
    async def _observed(self, began: float) -> AsyncIterator[None]:
        """The observer is shown how things stand for as long as this is entered."""

        async def look() -> None:
            while True:
                await self._look(began)
                await self._clock.sleep(LOOK_SECONDS)

        looking = asyncio.create_task(look())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait({looking})
        if not looking.cancelled():
            looking.result()
        await self._look(began)

    async def _look(self, began: float) -> None:
        regions = tuple((await self._regions()).values())
        actors = tuple((actor.part, actor.counts) for actor in self._actors.values())
        self._observer.looked(Snapshot(self._clock.now() - began, actors, regions))


def _how_it_ended(name: str, exit_code: int | None) -> str:
    return f"{name} still runs" if exit_code is None else f"{name} ended with exit code {exit_code}"
