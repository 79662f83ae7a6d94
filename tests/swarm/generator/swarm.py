"""Draw random mixes of workloads and faults. Most of them get a theme: correlated events that independent draws rarely
produce together."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from emulator.config.link_shape import LinkShape
from emulator.simulation.remote_log import RemoteFaults
from tests.swarm.faults import (
    FailingDisk,
    Replace,
)
from tests.swarm.generator.clients import carrying_seconds, draw_consumers, draw_producer
from tests.swarm.generator.topologies import draw_disk, draw_remote, draw_topology
from tests.swarm.nemesis import comeback, draw_fault, squeeze
from tests.swarm.plan import ConsumerPlan, Plan, ReaderPlan, with_settings
from tests.swarm.workloads import SWARM_WORKLOADS


def swarm(seed: int, random: Random) -> Plan:
    """Draw a random plan, a theme for it or none, and the operations of each workload."""
    plan = _anything(seed, random)
    theme = random.choices((None, _crashes, _moves, _takeovers), (5, 3, 2, 2))[0]
    plan = plan if theme is None else theme(random, plan)
    for workload in SWARM_WORKLOADS:
        # Each workload has its own random source: a new workload changes no plan in which it does not occur.
        plan = workload.draw(Random(f"swarm/{seed}/{workload.seed_name}"), plan)
    return replace(plan, heal_seconds_max=plan.heal_seconds_max + carrying_seconds(plan))


def _crashes(random: Random, plan: Plan) -> Plan:
    """Add repeated kills of one region with many pending appends, a slow disk and frequent checkpoints."""
    region = random.choice(plan.regions)
    settings = {"state_checkpoint_entries": random.choice((1, 3)), "snapshot_interval_ms": 2_000}
    dies_often = random.random() < 0.6
    burst = (
        8 if dies_often else 1
    )  # messages of one burst are one append; several appends must be pending to fail separately
    pause_seconds = round(plan.break_seconds * burst / 160, 4)
    producers = tuple(
        replace(one, messages=100, burst=burst, pause_seconds=pause_seconds) for one in plan.producers
    )
    faults = [
        *plan.faults[:2],
        *squeeze(random, region, plan.break_seconds * 0.5, rounds=8 if dies_often else 1),
        FailingDisk(
            round(random.uniform(0.3, plan.break_seconds * 0.5), 3),
            *(3.0 if dies_often else 10.0, region, random.choice((0.1, 0.3))),
        ),
    ]
    return replace(
        plan,
        topology=with_settings(plan.topology, **settings),
        producers=producers,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_seconds)),
    )


def _moves(random: Random, plan: Plan) -> Plan:
    """Give every region a producer and a moving consumer, and links of very different latency."""
    topology = plan.topology if len(plan.regions) > 2 else draw_topology(random, 3)
    names, topic = topology.region_names, plan.topics[0]
    links = tuple(replace(link, shape=LinkShape(random.choice((1.0, 5.0, 300.0)))) for link in topology.links)
    producers = tuple(
        replace(draw_producer(random, number, (name,), (topic,), plan.break_seconds), messages=60, place=name)
        for number, name in enumerate(names)
    )
    consumers = tuple(
        ConsumerPlan(
            *(f"wanderer-{number}", f"wandering-{number}", topic, name),
            replicated=True,
            moves=((round(plan.break_seconds * random.uniform(0.3, 0.9), 3), random.choice(names)),),
            think_seconds=0.0,
        )
        for number, name in enumerate(names)
    )
    return replace(
        plan,
        topology=replace(with_settings(topology, snapshot_interval_ms=100), links=links),
        producers=producers,
        consumers=consumers,
        faults=tuple(fault for fault in plan.faults[:3] if set(fault.places) <= set(plan.regions)),
        disks=tuple(
            (name, dict(plan.disks)[name] if name in plan.regions else draw_disk(random)) for name in names
        ),
        clocks=(),
    )


def _takeovers(random: Random, plan: Plan) -> Plan:
    """Give one region a remote log, and replace the region several times while many appends are pending."""
    region = random.choice(plan.regions)
    seconds = plan.break_seconds
    producers = tuple(
        replace(one, messages=100, burst=3, pause_seconds=round(seconds * 3 / 130, 4))
        for one in plan.producers
    )
    takeovers = [
        Replace(
            round(random.uniform(0.5, seconds), 3),
            round(random.choice((0.0, 0.1, 2.0)) * random.uniform(0.5, 1.5), 3),
            region,
        )
        for _ in range(random.randint(1, 3))
    ]
    others = [
        draw_fault(random, (region,), [one.name for one in producers], seconds, remote=(region,))
        for _ in range(2)
    ]
    faults = [*plan.faults[:3], *takeovers, *others]
    return replace(
        plan,
        producers=producers,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_seconds)),
        disks=(*(one for one in plan.disks if one[0] != region), (region, draw_remote(random))),
    )


def _anything(seed: int, random: Random) -> Plan:
    topology = draw_topology(random, random.choices((1, 2, 3, 4, 5), (2, 8, 8, 2, 1))[0])
    names = topology.region_names
    topics = ("orders", "events")[: random.choices((1, 2), (4, 1))[0]]
    break_seconds = random.uniform(4, 14)
    producers = tuple(
        draw_producer(random, number, names, topics, break_seconds) for number in range(random.randint(1, 4))
    )
    consumers = draw_consumers(random, names, topics, break_seconds)
    readers = tuple(
        ReaderPlan(
            f"reader-{number}", random.choice(names), random.choice(topics), random.choice((3, 20, 1000))
        )
        for number in range(random.choice((0, 0, 1, 1, 2)))
    )
    clients = [one.name for part in (producers, consumers, readers) for one in part]
    elsewhere = random.choice((0.0, 0.0, 0.0, 0.5, 1.0))
    disks = {
        name: draw_remote(random) if random.random() < elsewhere else draw_disk(random) for name in names
    }
    remote = tuple(name for name in names if isinstance(disks[name], RemoteFaults))
    faults = [
        draw_fault(random, names, clients, break_seconds, remote=remote)
        for _ in range(random.choice((0, 1, 2, 3, 4, 6, 9)))
    ]
    if random.random() < 0.4:
        faults += squeeze(random, random.choice(names), break_seconds)
    if random.random() < 0.4:
        forgetful = [one for one in producers if not one.keeps_outbox]
        faults += comeback(random, random.choice(forgetful or producers), break_seconds)
    return Plan(
        seed=seed,
        kind="swarm",
        topology=topology,
        topics=topics,
        producers=producers,
        consumers=consumers,
        readers=readers,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_seconds)),
        disks=tuple(disks.items()),
        clocks=tuple(
            (name, random.choice((0.0, random.gauss(0, 60_000))), random.gauss(0, 100)) for name in names
        ),
        break_seconds=break_seconds,
    )
