"""Draw plans for a single workload, for runs that name it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.swarm.faults import (
    ClockJump,
    Fault,
    Reset,
)
from tests.swarm.generator.clients import carrying_seconds
from tests.swarm.generator.small import drill
from tests.swarm.generator.swarm import swarm
from tests.swarm.generator.topologies import draw_disk, draw_remote, draw_topology
from tests.swarm.nemesis import (
    draw_fault,
    draw_frame_faults,
    draw_state_fault,
    states_of,
    with_faults_elsewhere,
)
from tests.swarm.plan import Plan, with_settings
from tests.swarm.workload import Workload
from tests.swarm.workloads import (
    metadata_sync,
    non_persistent,
    partial_snapshots,
    priority_levels,
    remote_limits,
    subscription_retention,
    transaction_key,
    trimming,
)


def hold_key(seed: int, random: Random) -> Plan:
    """Draw programs with transaction keys in one to three regions, and one or two producers for their inbox."""
    topology = draw_topology(random, random.choices((1, 2, 3), (4, 3, 1))[0])
    names = topology.region_names
    plan = Plan(
        seed=seed,
        kind=transaction_key.WORKLOAD.name,
        topology=topology,
        topics=(transaction_key.INBOX,),
        producers=(),
        consumers=(),
        disks=tuple(
            (name, draw_remote(random) if random.random() < 0.2 else draw_disk(random)) for name in names
        ),
        break_seconds=random.uniform(4, 10),
    )
    feeders = tuple(
        transaction_key.feeder(random, plan, number) for number in range(random.choice((1, 1, 2)))
    )
    plan = transaction_key.WORKLOAD.draw(random, replace(plan, producers=feeders))
    return replace(plan, heal_seconds_max=plan.heal_seconds_max + carrying_seconds(plan))


def with_adaptive_snapshots(seed: int, random: Random) -> Plan:
    """Draw a plan of another kind, `failover` or `swarm`, with the adaptive schedule of snapshots. Its few messages
    overdraw the budget of early snapshots."""
    plan = random.choice((drill, swarm))(seed, random)
    interval_ms = random.choice((50, 100, 300, 1_000))
    topology = with_settings(plan.topology, snapshot_schedule="adaptive", snapshot_interval_ms=interval_ms)
    return replace(plan, kind="adaptive-snapshots", topology=topology)


def change_metadata_published_first(seed: int, random: Random) -> Plan:
    """Draw a plan like `change_metadata`, with the order of PIP-136 (`metadata_order: upstream`)."""
    plan = change_metadata(seed, random)
    topology = replace(
        plan.topology, compatibility={**plan.topology.compatibility, "metadata_order": "upstream"}
    )
    return replace(plan, kind=metadata_sync.PUBLISHED_FIRST, topology=topology)


def change_metadata(seed: int, random: Random) -> Plan:
    """Draw two to five clusters that share their metadata, and administrators that change it."""
    size = random.choices((2, 3, 4, 5), (4, 4, 2, 1))[0]
    topology = draw_topology(random, size, random.randint(2, size))
    names = topology.region_names
    plan = Plan(
        seed=seed,
        kind=metadata_sync.WORKLOAD.name,
        topology=topology,
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple(
            (name, draw_remote(random) if random.random() < 0.1 else draw_disk(random)) for name in names
        ),
        break_seconds=random.uniform(4, 12),
    )
    return metadata_sync.WORKLOAD.draw(random, plan)


def with_right_clocks(workload: Workload, topic: str, seed: int, random: Random) -> Plan:
    """Draw a plan with one workload, random faults, and correct clocks."""
    topology = draw_topology(random, random.choices((1, 2, 3), (3, 3, 1))[0])
    names = topology.region_names
    plan = Plan(
        seed=seed,
        kind=workload.name,
        topology=topology,
        topics=(topic,),
        producers=(),
        consumers=(),
        disks=tuple((name, draw_disk(random)) for name in names),
        break_seconds=random.uniform(4, 10),
    )
    plan = workload.draw(random, plan)
    clients = [one.name for one in plan.consumers]
    faults = [draw_fault(random, names, clients, plan.break_seconds) for _ in range(random.randint(2, 6))]
    faults = [one for one in faults if not isinstance(one, ClockJump)]
    return replace(plan, faults=tuple(sorted(faults, key=lambda one: one.at_seconds)))


def trim(seed: int, random: Random) -> Plan:
    """Draw a plan without retention, with random faults and correct clocks: acknowledged messages are trimmed."""
    topology = draw_topology(random, random.choices((1, 2, 3), (2, 4, 2))[0])
    names = topology.region_names
    namespace = replace(topology.namespaces[0], retention_minutes=0, retention_megabytes=0)
    topology = with_settings(topology, housekeeping_interval_ms=random.choice((50, 300, 1_000)))
    plan = Plan(
        seed=seed,
        kind=trimming.WORKLOAD.name,
        topology=replace(topology, namespaces=(namespace,)),
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple((name, draw_disk(random)) for name in names),
        break_seconds=random.uniform(4, 10),
    )
    plan = with_faults_elsewhere(plan, random)
    return trimming.WORKLOAD.draw(random, plan)


def with_policies(workload: Workload, seed: int, random: Random) -> Plan:
    """Draw a plan with topic policies, frequent housekeeping, and random faults, except of clocks and programs."""
    topology = draw_topology(random, random.choices((1, 2, 3), (2, 4, 2))[0])
    topology = with_settings(topology, housekeeping_interval_ms=random.choice((50, 300, 1_000)))
    plan = Plan(
        seed=seed,
        kind=workload.name,
        topology=topology,
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple((name, draw_disk(random)) for name in topology.region_names),
        break_seconds=random.uniform(4, 10),
    )
    return with_faults_elsewhere(workload.draw(random, plan), random)


def rank(seed: int, random: Random) -> Plan:
    """Draw a plan in which only permits limit deliveries: consumers may hold 50,000 unacknowledged messages."""
    plan = with_policies(priority_levels.WORKLOAD, seed, random)
    return replace(plan, topology=with_settings(plan.topology, max_unacked_messages_per_consumer=50_000))


def pass_by(seed: int, random: Random) -> Plan:
    """Draw a plan like `with_policies`, and resets of connections while messages are in transit."""
    plan = with_policies(non_persistent.WORKLOAD, seed, random)
    breaks = [
        Reset(round(random.uniform(act.at_seconds, plan.break_seconds), 3), 0.0, act.places[0], act.places[1])
        for act in plan.acts
        for _ in range(3)
        if len(set(act.places)) > 1
    ]
    return replace(plan, faults=tuple(sorted((*plan.faults, *breaks), key=lambda one: one.at_seconds)))


def with_frame_faults(plan: Plan, random: Random) -> Plan:
    """Return the plan with faults of frames on its links. Half of the plans lose their other faults: what then goes
    wrong is not healed by a connection that breaks."""
    if len(plan.regions) < 2:
        return plan
    others = plan.faults if random.random() < 0.5 else ()
    added = [
        draw_frame_faults(random, plan.regions, plan.break_seconds, number)
        for number in range(random.randint(1, 8))
    ]
    return replace(plan, faults=tuple(sorted((*others, *added), key=lambda fault: fault.at_seconds)))


def over_wide_links(workload: Workload, seed: int, random: Random) -> Plan:
    """Draw a plan like `with_policies`, with links of unlimited bandwidth: large messages do not delay pings."""
    plan = with_policies(workload, seed, random)
    links = tuple(
        replace(one, shape=replace(one.shape, bandwidth_bytes_per_second=None)) for one in plan.topology.links
    )
    return replace(plan, topology=replace(plan.topology, links=links))


def fail_at_states(seed: int, random: Random) -> Plan:
    """Draw a plan of the swarm, or one with transaction keys or metadata sync, and faults that begin at states of its
    protocols."""
    while True:
        base = random.choices((swarm, hold_key, change_metadata), (6, 3, 2))[0]
        plan = base(random.getrandbits(32), random)
        if events := states_of(plan):
            break
    faults: list[Fault] = [draw_state_fault(random, plan, events) for _ in range(random.randint(2, 6))]
    faults += random.sample(plan.faults, min(len(plan.faults), 2))
    sorted_faults = tuple(sorted(faults, key=lambda one: one.at_seconds))
    return replace(plan, seed=seed, kind="barriers", faults=sorted_faults)


def carry(seed: int, random: Random) -> Plan:
    """Draw two or three regions, mostly of several clusters and without retention, random faults, correct clocks."""
    size = random.choices((2, 3), (3, 2))[0]
    topology = draw_topology(random, size, random.choices((None, size), (1, 2))[0])
    namespace = topology.namespaces[0]
    if random.random() < 0.8:
        namespace = replace(namespace, retention_minutes=0, retention_megabytes=0)
    topology = with_settings(topology, housekeeping_interval_ms=random.choice((50, 300, 1_000)))
    plan = Plan(
        seed=seed,
        kind=subscription_retention.WORKLOAD.name,
        topology=replace(topology, namespaces=(namespace,)),
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple((name, draw_disk(random)) for name in topology.region_names),
        break_seconds=random.uniform(4, 10),
    )
    return with_faults_elsewhere(subscription_retention.WORKLOAD.draw(random, plan), random)


def without_a_region(seed: int, random: Random) -> Plan:
    """Draw three or four regions of which one dies, on links that are not slow, and some more faults."""
    topology = draw_topology(random, random.choices((3, 4), (3, 1))[0])
    links = tuple(
        replace(one, shape=replace(one.shape, bandwidth_bytes_per_second=None)) for one in topology.links
    )
    plan = Plan(
        seed=seed,
        kind=partial_snapshots.WORKLOAD.name,
        topology=replace(topology, links=links),
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple((name, draw_disk(random)) for name in topology.region_names),
        break_seconds=random.uniform(4, 10),
    )
    if random.random() < 0.5:
        plan = with_faults_elsewhere(plan, random)
    return partial_snapshots.WORKLOAD.draw(random, plan)


def over_limits(seed: int, random: Random) -> Plan:
    """Draw two or three regions, mostly of several clusters, with random faults and correct clocks."""
    size = random.choices((2, 3), (3, 2))[0]
    topology = draw_topology(random, size, random.choices((None, size), (1, 2))[0])
    topology = with_settings(topology, housekeeping_interval_ms=random.choice((50, 300, 1_000)))
    plan = Plan(
        seed=seed,
        kind=remote_limits.WORKLOAD.name,
        topology=topology,
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple((name, draw_disk(random)) for name in topology.region_names),
        break_seconds=random.uniform(4, 10),
    )
    plan = remote_limits.WORKLOAD.draw(random, with_faults_elsewhere(plan, random))
    return replace(plan, faults=tuple(sorted(plan.faults, key=lambda one: one.at_seconds)))
