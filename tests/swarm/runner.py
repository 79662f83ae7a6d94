"""Run plans: first with faults, while no safety invariant may be violated; then all faults are repaired, and the
regions must converge within a bounded time.

    break   faults begin and end; at its end the safety invariants are checked
    heal    links up, regions and clients running, disks without faults
              → every producer has its outcomes, all regions hold the same
              → every subscription returns to each region it was in, and receives everything
            at its end all invariants are checked
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from emulator.simulation.evidence import full, seconds_of
from emulator.simulation.history import note_repair
from emulator.simulation.invariant_check import InvariantResult, first_violation, run_checks
from emulator.simulation.outcome import (
    SimulationOutcome,
    configurations_of,
    run_to_the_end,
    stored_state,
    without_gc_and_logging,
)
from emulator.simulation.region import AS_SHIPPED, Overrides
from emulator.simulation.simulation import Simulation
from emulator.simulation.stored_messages import Disks, have_converged
from emulator.simulation.trace import Listener
from emulator.simulation.watch import CursorWatch
from tests.swarm.actors.claimant import ClaimantActor
from tests.swarm.actors.clients import ConsumerActor, ProducerActor, ReaderActor
from tests.swarm.actors.worker import WorkerActor
from tests.swarm.checkers.claims import Claims, grants_on
from tests.swarm.checkers.stored_metadata import MetadataEvidence, stored_metadata
from tests.swarm.checkers.transaction_tasks import TaskEvidence, stored_tasks
from tests.swarm.evidence import Evidence, Left, OperationResult
from tests.swarm.faults import AtState, Fault, LinkFault
from tests.swarm.generator.kinds import draw
from tests.swarm.names import seed_name
from tests.swarm.plan import Plan
from tests.swarm.record import Record
from tests.swarm.topics import DELETED, TRANSACTED
from tests.swarm.workload import ActContext
from tests.swarm.workloads import CHECKS
from tests.swarm.workloads.metadata_sync import all_events_received, stores_equal_event_fold
from tests.swarm.workloads.seek import redelivered_after_seek
from tests.swarm.workloads.transaction_key_checks import all_processed
from tests.swarm.workloads.unsubscribe import recreated_subscription_is_new
from tests.swarm.world import SwarmWorld

CARRY_SECONDS = 60.0
"""Virtual seconds within which the last acknowledgement must be stored and replicated to the other regions."""
SETTLE_SECONDS = 5.0
"""Virtual seconds in which clients and links reconnect after a restart of all regions."""
SILENCE_SECONDS = 2.5
"""Virtual seconds without a write after which regions count as quiet; longer than any snapshot interval."""
SILENCE_SECONDS_MAX = 120.0
"""Virtual seconds within which regions must stop writing. With a replication window of one entry a slow link carries
only three markers per second."""
LOOK_SECONDS = 0.5
"""Interval between two checks for convergence, in virtual seconds."""


@dataclass(slots=True, kw_only=True)
class Outcome(SimulationOutcome):
    """The result of one seed of a workload."""

    plan: Plan
    operations: list[OperationResult]
    """Outcomes of the workloads' operations."""
    reached: list[str]
    """Events of the states at which faults began."""


def run_seed(kind: str, seed: int, *, overrides: Overrides = AS_SHIPPED) -> Outcome:
    """Draw a plan and run it."""
    return run_plan(draw(kind, seed), overrides=overrides)


def run_plan(plan: Plan, *, overrides: Overrides = AS_SHIPPED, listener: Listener | None = None) -> Outcome:
    """Run a plan in a new simulation. The outcome contains violations; only errors of the simulation itself are
    raised."""
    with without_gc_and_logging():
        return _run_in_new_world(plan, overrides, listener)


def _run_in_new_world(plan: Plan, overrides: Overrides, listener: Listener | None) -> Outcome:
    simulation = Simulation(f"{seed_name(plan.kind)}/{plan.seed}/{plan.variation}", listener=listener)
    with SwarmWorld(
        plan.topology, disks=dict(plan.disks), simulation=simulation, overrides=overrides
    ) as world:
        run = _Run(plan, world)
        seconds_max = plan.break_seconds + 2 * plan.heal_seconds_max
        program_failure = run_to_the_end(world, run.story(), within_seconds=seconds_max)
        outcome = Outcome(
            name=plan.kind,
            seed=plan.seed,
            topology=plan.topology,
            violation=program_failure or first_violation(run.check_results),
            check_results=run.check_results,
            virtual_seconds=simulation.now,
            digest=simulation.trace.hexdigest(),
            events=run.record.events,
            stored=stored_state(world),
            plan=plan,
            operations=run.record.operations,
            reached=run.reached,
        )
        run.release_evidence()
        return outcome


class _Run:
    """The run of one plan: its programs, its phases and the evidence for the checks."""

    def __init__(self, plan: Plan, world: SwarmWorld) -> None:
        self.plan = plan
        self.world = world
        self.simulation = world.simulation
        self.record = Record(lambda: self.simulation.time.now)
        self.media = {name: region.medium for name, region in world.regions.items()}
        self.disks = Disks(self.media, ignored=(TRANSACTED, DELETED))
        self.check_results: list[InvariantResult] = []
        self.restless: set[tuple[str, str]] = set()
        self.reached: list[str] = []
        """Events of the states at which faults began."""
        self._waiting: list[asyncio.Future[None]] = []
        """Waits for the states of `AtState` faults."""
        self.watch = CursorWatch(self.disks, self.record)
        self.producers = [ProducerActor(world, self.record, one) for one in plan.producers]
        self.consumers = [ConsumerActor(world, self.record, one) for one in plan.consumers]
        self.readers = [ReaderActor(world, self.record, one) for one in plan.readers]
        self.claimants = [ClaimantActor(world, self.record, one) for one in plan.claimants]
        self.workers = [WorkerActor(world, self.record, one) for one in plan.workers]
        alone = (*self.producers, *self.readers, *self.claimants, *self.workers)
        world.actors.update({actor.name: actor for actor in alone})
        world.actors.update({actor.plan.name: actor for actor in self.consumers})
        self.record.delivered.replicated.update(
            (full(one.topic), one.subscription) for one in plan.consumers if one.replicated
        )
        self._prepare_hosts()

    def _prepare_hosts(self) -> None:
        for name, offset_ms, drift_ppm in self.plan.clocks:
            clock = self.world.regions[name].host.wall_clock_ms
            clock.jump(offset_ms)
            clock.drift_ppm = drift_ppm
        for name, region in self.world.regions.items():
            self.watch.attach(name, region.medium)

    # Phases.

    async def story(self) -> None:
        await self._break()
        self._run_checks(healed=False)
        if first_violation(self.check_results) is not None:
            return
        await self._heal()
        self._run_checks(healed=True)

    async def _break(self) -> None:
        self.record.fact("phase", detail="break")
        for region in self.world.regions.values():
            region.start()
        random = self.simulation.random("begin")
        for actor in (*self.producers, *self.consumers, *self.readers, *self.claimants, *self.workers):
            self.simulation.at(random.uniform(0, 0.5), actor.begin)
        for consumer in self.consumers:
            for at_seconds, region_name in consumer.plan.moves:
                if at_seconds < self.plan.break_seconds:
                    self.simulation.at(at_seconds, consumer.move, region_name)
        for number, act in enumerate(self.plan.acts):
            if act.at_seconds < self.plan.break_seconds:
                context = ActContext(self.world, self.record, act, number)
                self.simulation.at(act.at_seconds, context.begin)
        for fault in self.plan.faults:
            if fault.at_seconds >= self.plan.break_seconds:
                continue
            self.simulation.at(fault.at_seconds, self._begin, fault)
            if isinstance(fault, AtState):
                self.simulation.at(fault.at_seconds, self._begin_wait, fault)
            else:
                self._end_after(fault, fault.at_seconds)
        await asyncio.sleep(self.plan.break_seconds)
        for waiting in self._waiting:
            waiting.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def _end_after(self, fault: Fault, began_seconds: float) -> None:
        """End a fault after its duration, or when the world heals."""
        end = began_seconds + fault.lasts_seconds
        if end < self.plan.break_seconds:
            self.simulation.at(end, self._end, fault)

    def _begin_wait(self, fault: AtState) -> None:
        self._waiting.append(asyncio.ensure_future(self._begin_at_state(fault)))

    async def _begin_at_state(self, fault: AtState) -> None:
        if await fault.reached(self.world, self.plan.break_seconds):
            self.record.fact("step", detail=f"{fault.region} has counted {fault.count} more {fault.event}")
            self.reached.append(fault.event)
            self._begin(fault.fault)
            self._end_after(fault.fault, self.simulation.now)

    def _begin(self, fault: Fault) -> None:
        self._note(fault, fault.op)
        fault.begin(self.world)

    def _end(self, fault: Fault) -> None:
        fault.end(self.world)
        if fault.end_op is not None:
            self._note(fault, fault.end_op)

    def _note(self, fault: Fault, op: str) -> None:
        """Record a fault as the matching fact of histories (kill, cut …), or as a step if there is none."""
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
        note_repair(self.record, world.regions.values())
        for name in world.regions:
            world.regions[name].medium.repair()
            world.resume(name)
            world.start(name)
        for store in world.configurations.values():
            store.repair()
        for consumer in self.consumers:
            consumer.hurry()
        for actor in world.actors.values():
            actor.resume()
            actor.begin()
        deadline = self.simulation.now + self.plan.heal_seconds_max
        if await self._comes_true(self._is_converged, deadline):
            # A region that a consumer left delivers its remaining messages only when `_tour` returns there.
            await self._comes_true(
                self._are_acts_answered, min(deadline, self.simulation.now + CARRY_SECONDS)
            )
            # Messages that acts published meanwhile must be in every region before deliveries are checked.
            await self._comes_true(self._is_converged, deadline)
            await self._tour(deadline)
            await self._comes_true(self._are_acts_answered, deadline)
            if self.plan.restarts_at_the_end:
                await self._die_once_more()
            if await self._comes_true(
                self._is_nothing_left, min(deadline, self.simulation.now + CARRY_SECONDS)
            ):
                await self._fall_silent(self.simulation.now + SILENCE_SECONDS_MAX)

    async def _comes_true(self, condition: Callable[[], bool], deadline: float) -> bool:
        while not condition():
            if self.simulation.now >= deadline:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    def _is_converged(self) -> bool:
        finished = [*(one.finished for one in self.producers), *(one.finished for one in self.claimants)]
        if self._lingering() or not all(finished):
            return False
        self.disks.read_new_entries()
        return have_converged(self.disks, self.world.replication_rules)

    async def _die_once_more(self) -> None:
        for name in self.world.regions:
            self.world.kill(name)
            self.world.start(name)
        await self._comes_true(self.world.is_ready, self.simulation.now + CARRY_SECONDS)
        await asyncio.sleep(SETTLE_SECONDS)

    def _are_acts_answered(self) -> bool:
        """Whether all acts have ended and no check fails that can still pass with more time."""
        if not self.plan.acts and not self.plan.workers:
            return True
        if self._acts_under_way():
            return False
        evidence = self._evidence(healed=True)
        expected = (
            redelivered_after_seek,
            recreated_subscription_is_new,
            all_processed,
            all_events_received,
            stores_equal_event_fold,
        )
        return not any(any(find(evidence)) for find in expected)

    def _acts_under_way(self) -> bool:
        """Whether an act that consumers wait for has not ended yet."""
        begun = Counter(act.workload for act in self.plan.acts if act.is_awaited)
        return bool(begun) and begun > Counter(
            operation.workload for operation in self.record.operations if operation.workload in begun
        )

    def _is_nothing_left(self) -> bool:
        self.disks.read_new_entries()
        return not any(left.must_be_none if left.messages else left.claim for left in self._left().values())

    async def _fall_silent(self, deadline: float) -> None:
        """Wait until no log grows any more; store the logs that still grow in `restless`."""
        written, since = self._written(), self.simulation.now
        while self.simulation.now - since < SILENCE_SECONDS:
            if self.simulation.now >= deadline:
                return
            await asyncio.sleep(LOOK_SECONDS)
            now_written = self._written()
            changed = {place for place, count in now_written.items() if count != written.get(place)}
            if changed:
                self.restless, written, since = changed, now_written, self.simulation.now
        self.restless = set()

    def _written(self) -> dict[tuple[str, str], int]:
        self.disks.read_new_entries()
        return {place: len(view.ids) for place, view in self.disks.logs.items()}

    def _lingering(self) -> list[str]:
        return [host.name for region in self.world.regions.values() for host in region.running_former_hosts]

    async def _tour(self, deadline: float) -> None:
        """Let every consumer drain its current region, then every other region in which it subscribed."""
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
        is_done = self.record.delivered.to(region, topic, consumer.plan.subscription)
        view = self.disks.logs.get((region, topic))
        return view is None or all(is_done(one.origin, one.text) for one in view.messages)

    def _run_checks(self, *, healed: bool) -> None:
        self.check_results = run_checks(self._evidence(healed=healed), CHECKS)

    def _evidence(self, *, healed: bool) -> Evidence:
        self.disks.read_new_entries()
        return Evidence(
            replication_rules=self.world.replication_rules,
            events=self.record.events,
            delivered=self.record.delivered,
            published=self.record.published,
            logs=self.disks.logs,
            cursors=self.disks.cursors(),
            mark_delete_regressions=self.watch.mark_delete_regressions,
            acknowledged_unreceived=self.watch.acknowledged_unreceived,
            fencing_violations=self.disks.fencing_violations(),
            running_former_hosts=self._lingering(),
            healed=healed,
            waiting=frozenset(text for producer in self.producers for text in producer.waiting),
            subscribed=self._subscribed(),
            windows=self.record.windows,
            operations=self.record.operations,
            claims=self._claims(),
            grants=grants_on(self.media),
            left=self._left() if healed else {},
            restless=self.restless,
            metadata=self._metadata(),
            tasks=self._tasks() if self.plan.workers else None,
        )

    def release_evidence(self) -> None:
        """Release the messages, at the end. The run is part of reference cycles, in which garbage collection would have
        to find them."""
        self.disks.logs.clear()
        self.record.published.clear()

    def _metadata(self) -> MetadataEvidence | None:
        settings = self.plan.topology.clusters[0].regions[0].settings
        if not settings.configuration_metadata_sync_event_topic:
            return None
        return stored_metadata(configurations_of(self.world), self.media)

    def _tasks(self) -> TaskEvidence:
        stored = stored_tasks(self.media)
        tasks = tuple(sorted({one.task for one in self.workers}))
        return TaskEvidence(self.record.tasks, stored, tasks, full(self.plan.workers[0].inbox))

    def _claims(self) -> Claims:
        self.record.claims.wanting = {one.name: one.last for one in self.claimants if not one.finished}
        return self.record.claims

    def _subscribed(self) -> dict[tuple[str, str], list[str]]:
        subscribed: dict[tuple[str, str], list[str]] = {}
        for consumer in self.consumers:
            regions = subscribed.setdefault((full(consumer.plan.topic), consumer.plan.subscription), [])
            regions += [region for region in consumer.visited if region not in regions]
        return subscribed

    def _left(self) -> dict[tuple[str, str, str], Left]:
        """Return the backlogs by (region, topic, subscription), in the consumer's region and, for a replicated
        subscription, in all regions of the topic."""
        found: dict[tuple[str, str, str], Left] = {}
        cursors = self.disks.cursors()
        for consumer in self.consumers:
            topic, subscription = full(consumer.plan.topic), consumer.plan.subscription
            is_replicated = (topic, subscription) in self.record.delivered.replicated
            for region in self.world.replication_rules.regions(topic) if is_replicated else [consumer.region]:
                cursor = cursors.get((region, topic, subscription))
                view = self.disks.logs.get((region, topic))
                if cursor is not None and view is not None:
                    left = [one for one in view.messages if not cursor.is_done(one.entry, one.batch_index)]
                    claim = self.world.regions[region].backlog(topic, subscription)
                    must_be_none = region == consumer.region or (
                        self._carries_everything() and self._hears_of(region, consumer, topic, subscription)
                    )
                    found[region, topic, subscription] = Left(left, claim, must_be_none)
        return found

    def _hears_of(self, region: str, consumer: ConsumerActor, topic: str, subscription: str) -> bool:
        """Whether a region certainly receives the consumer's current position. After a deletion or a seek the
        subscription is new there, and other regions do not send earlier acknowledgements again."""
        moved_at = self.record.windows.last_end(region, topic, subscription)
        return moved_at < 0 or any(
            seconds_of(event) > moved_at
            for event in self.record.events
            if event.op == "acknowledge"
            and (event.region, event.topic and full(event.topic), event.subscription)
            == (consumer.region, topic, subscription)
        )

    def _carries_everything(self) -> bool:
        """Whether the position of a replicated subscription certainly reaches the other regions. A message that is not
        replicated to the consumer's region stays unacknowledged in the others."""
        return not any(one.plan.choosy for one in self.producers)
