"""Runs plans: first things go wrong and nothing promised may be violated; then everything is repaired, and the world
must converge within a bounded time.

    break   faults begin and end; at its end what must never be is judged
    heal    links up, regions and clients running, disks sound
              → every producer has its outcomes, all regions hold the same
              → every subscription goes once more to each region it was in, and is given everything
            at its end everything is judged
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emulator.simulation.actors import ConsumerActor, ProducerActor, ReaderActor
from emulator.simulation.checkers import Judgement, first_violation, judge
from emulator.simulation.draw import draw
from emulator.simulation.evidence import Disks, Evidence, full, hold_the_same
from emulator.simulation.faults import Fault, LinkFault
from emulator.simulation.outcome import Outcome, logs_of, play_to_the_end, uncollected
from emulator.simulation.plan import Plan
from emulator.simulation.record import Record
from emulator.simulation.simulation import Simulation
from emulator.simulation.trace import Listener
from emulator.simulation.watch import CursorWatch
from emulator.simulation.world import World

LOOK_SECONDS = 0.5
"""How often it is looked whether everything has converged."""


def run_seed(kind: str, seed: int) -> Outcome:
    """Draw and run."""
    return run_plan(draw(kind, seed))


def run_plan(plan: Plan, *, listener: Listener | None = None) -> Outcome:
    """Run it in a world of its own. What goes wrong is in the outcome; nothing is raised but what the simulation itself
    must not allow."""
    simulation = Simulation(f"{plan.kind}/{plan.seed}/{plan.variation}", listener=listener)
    with uncollected(), World(plan.topology, disks=dict(plan.disks), simulation=simulation) as world:
        run = _Run(plan, world)
        seconds_max = plan.break_seconds + 2 * plan.heal_seconds_max
        unsound = play_to_the_end(world, run.story(), within_seconds=seconds_max)
        return Outcome(
            plan=plan,
            violation=unsound or first_violation(run.judgements),
            judgements=run.judgements,
            virtual_seconds=simulation.now,
            digest=simulation.trace.hexdigest(),
            events=run.record.events,
            logs=logs_of(world),
        )


class _Run:
    """One plan on its way."""

    def __init__(self, plan: Plan, world: World) -> None:
        self.plan = plan
        self.world = world
        self.simulation = world.simulation
        self.record = Record(lambda: self.simulation.now)
        self.disks = Disks({name: region.disk for name, region in world.regions.items()})
        self.judgements: list[Judgement] = []
        self.watch = CursorWatch(self.disks, self.record)
        self.producers = [ProducerActor(world, self.record, one) for one in plan.producers]
        self.consumers = [ConsumerActor(world, self.record, one) for one in plan.consumers]
        self.readers = [ReaderActor(world, self.record, one) for one in plan.readers]
        world.actors.update({actor.name: actor for actor in (*self.producers, *self.readers)})
        world.actors.update({actor.plan.name: actor for actor in self.consumers})
        self._prepare_hosts()

    def _prepare_hosts(self) -> None:
        for name, offset_ms, drift_ppm in self.plan.clocks:
            clock = self.world.regions[name].host.wall_clock_ms
            clock.jump(offset_ms)
            clock.drift_ppm = drift_ppm
        for name, region in self.world.regions.items():
            self.watch.attach(name, region.disk)

    # The story.

    async def story(self) -> None:
        await self._break()
        self._judge(healed=False)
        if first_violation(self.judgements) is not None:
            return
        await self._heal()
        self._judge(healed=True)

    async def _break(self) -> None:
        self.record.fact("phase", detail="break")
        for region in self.world.regions.values():
            region.start()
        random = self.simulation.random("begin")
        for actor in (*self.producers, *self.consumers, *self.readers):
            self.simulation.at(random.uniform(0, 0.5), actor.begin)
        for consumer in self.consumers:
            for at_seconds, region_name in consumer.plan.moves:
                if at_seconds < self.plan.break_seconds:
                    self.simulation.at(at_seconds, consumer.move, region_name)
        for fault in self.plan.faults:
            if fault.at_seconds >= self.plan.break_seconds:
                continue
            self.simulation.at(fault.at_seconds, self._begin, fault)
            end = fault.at_seconds + fault.lasts_seconds
            if end < self.plan.break_seconds:
                self.simulation.at(end, self._end, fault)
        await asyncio.sleep(self.plan.break_seconds)

    def _begin(self, fault: Fault) -> None:
        self._note(fault, fault.op)
        fault.begin(self.world)

    def _end(self, fault: Fault) -> None:
        fault.end(self.world)
        if fault.end_op is not None:
            self._note(fault, fault.end_op)

    def _note(self, fault: Fault, op: str) -> None:
        """In the words of a run's history where it has words for it, as a step of the story otherwise."""
        first, second = (*fault.places, None, None)[:2]
        if isinstance(fault, LinkFault) and op in ("cut", "hold", "heal"):
            way = "one way" if fault.one_way else "both ways"
            self.record.fact(op, region=first, other_region=second, detail=way)
        elif first in self.world.regions and op in ("kill", "start", "pause", "resume"):
            self.record.fact(op, region=first)
        else:
            self.record.fact("step", detail=f"{op} {first}")

    async def _heal(self) -> None:
        world = self.world
        self.record.fact("phase", detail="heal")
        world.healing = True
        world.heal()
        for name in world.regions:
            world.regions[name].disk.repair()
            world.resume(name)
            world.start(name)
        for consumer in self.consumers:
            consumer.hurry()
        for actor in world.actors.values():
            actor.resume()
            actor.begin()
        deadline = self.simulation.now + self.plan.heal_seconds_max
        if await self._comes_true(self._is_converged, deadline):
            await self._tour(deadline)

    async def _comes_true(self, condition: Callable[[], bool], deadline: float) -> bool:
        while not condition():
            if self.simulation.now >= deadline:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    def _is_converged(self) -> bool:
        if self._lingering() or not all(producer.finished for producer in self.producers):
            return False
        self.disks.read_on()
        return hold_the_same(self.disks, self.plan.regions)

    def _lingering(self) -> list[str]:
        return [host.name for region in self.world.regions.values() for host in region.lingering]

    async def _tour(self, deadline: float) -> None:
        """Every consumer drains where it is, then once more in every region it was in."""
        for consumer in self.consumers:
            if not consumer.visited:
                consumer.visited.append(consumer.region)
            rest = [region for region in consumer.visited if region != consumer.region]
            for region in [consumer.region, *rest]:
                consumer.move(region)
                consumer.hurry()
                if not await self._comes_true(lambda c=consumer, r=region: self._is_drained(c, r), deadline):  # type: ignore[misc]
                    return

    def _is_drained(self, consumer: ConsumerActor, region: str) -> bool:
        topic = full(consumer.plan.topic)
        seen = self.record.received[topic, consumer.plan.subscription]
        view = self.disks.logs.get((region, topic))
        return view is None or all((one.origin, one.text) in seen for one in view.messages)

    def _judge(self, *, healed: bool) -> None:
        self.disks.read_on()
        subscribed: dict[tuple[str, str], list[str]] = {}
        for consumer in self.consumers:
            key = (full(consumer.plan.topic), consumer.plan.subscription)
            subscribed.setdefault(key, []).extend(consumer.visited)
        evidence = Evidence(
            regions=self.plan.regions,
            deduplicates=self.plan.deduplicates,
            events=self.record.events,
            received=self.record.received,
            logs=self.disks.logs,
            cursors=self.disks.cursors(),
            fallen=self.watch.fallen,
            unseen=self.watch.unseen,
            trespasses=self.disks.trespasses(),
            lingering=self._lingering(),
            healed=healed,
            waiting=frozenset(text for producer in self.producers for text in producer.waiting),
            subscribed=subscribed,
        )
        self.judgements = judge(evidence)
