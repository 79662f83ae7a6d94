"""From a seed to a plan. Everything is drawn here, nothing while the plan runs.

Settings are drawn small, so that windows fill, caches overflow and checkpoints are written many times within seconds:
what is rare in a long life must be common in a short one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from emulator.client import Batching
from emulator.region_config import BrokerSettings, LinkShape, NamespaceConfig
from emulator.simulation.faults import (
    ClockJump,
    Cut,
    FailingDisk,
    Fault,
    FullDisk,
    Hold,
    Kill,
    KillClient,
    LogAway,
    LostAnswers,
    Pause,
    PauseClient,
    PowerOff,
    Replace,
    Reset,
    SlowDisk,
)
from emulator.simulation.medium import DiskFaults
from emulator.simulation.plan import ConsumerPlan, Plan, ProducerPlan, ReaderPlan, with_settings
from emulator.simulation.remote_log import RemoteFaults
from emulator.simulation.vocabulary import (
    WORDS,
    carrying,
    changing_metadata,
    compacting,
    cutting_up,
    delaying,
    expiring,
    finishing,
    giving_up,
    holding_keys,
    keeping_away,
    limiting,
    passing_by,
    ranking,
    retaining,
    spreading,
    sticking,
    trimming,
)
from emulator.simulation.vocabulary.word import Word
from emulator.simulation.world import NAMESPACE, SERVICE_PORT, simple_topology
from emulator.topology import Cluster, Link, Region, Topology

ENTRY_BYTES = 1_500
"""What an entry has at most, but for the large batches: a payload of 1,000 bytes, metadata, what replication adds."""
REGION_NAMES = ("us", "eu", "ap", "sa", "af")


def draw(kind: str, seed: int) -> Plan:
    """The plan of that kind which the seed stands for. KeyError when there is no such kind."""
    return KINDS[kind](seed, Random(f"{kind}/{seed}"))


def _swarm(seed: int, random: Random) -> Plan:
    """Anything; and often enough more of what belongs together than mere chance would bring."""
    plan = _anything(seed, random)
    theme = random.choices((None, _crashes, _moves, _takeovers), (5, 3, 2, 2))[0]
    plan = plan if theme is None else theme(random, plan)
    for word in WORDS:
        # From a source of its own, so that a new word leaves the plans as they were in which it does not occur.
        plan = word.draw(Random(f"swarm/{seed}/{word.name}"), plan)
    return replace(plan, heal_seconds_max=plan.heal_seconds_max + _carrying_seconds(plan))


def _carrying_seconds(plan: Plan) -> float:
    """How long the slowest link may take for everything that is published, by the window alone. A window of one entry
    and half a second there and back carry 400 messages in 200 s, and nothing is wrong with that."""
    latency_ms = {
        (link.source, link.target): link.shape.latency_ms + link.shape.jitter_ms
        for link in plan.topology.links
    }
    way_ms = max((latency_ms[one, other] + latency_ms[other, one] for one, other in latency_ms), default=0.0)
    messages = sum(one.messages * (1 + one.repeats) for one in plan.producers)
    settings = plan.topology.clusters[0].regions[0].settings
    window = min(
        settings.replication_window_entries, max(1, settings.replication_window_bytes // ENTRY_BYTES)
    )
    return round(messages * way_ms / 1000 / window, 3)


def _crashes(random: Random, plan: Plan) -> Plan:
    """One region dies again and again with much on its way to a slow disk, and checkpoints all the time."""
    region = random.choice(plan.regions)
    settings = {"state_checkpoint_entries": random.choice((1, 3)), "snapshot_interval_ms": 2_000}
    dies_often = random.random() < 0.6
    burst = (
        8 if dies_often else 1
    )  # what comes in one breath is one append; several must be under way to fail apart
    pause_seconds = round(plan.break_seconds * burst / 160, 4)
    producers = tuple(
        replace(one, messages=100, burst=burst, pause_seconds=pause_seconds) for one in plan.producers
    )
    faults = [
        *plan.faults[:2],
        *_squeeze(random, region, plan.break_seconds * 0.5, rounds=8 if dies_often else 1),
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
    """Somebody publishes and somebody consumes in every region, links differ as much as they can, consumers wander."""
    topology = plan.topology if len(plan.regions) > 2 else _topology(random, 3)
    names, topic = topology.region_names, plan.topics[0]
    links = tuple(replace(link, shape=LinkShape(random.choice((1.0, 5.0, 300.0)))) for link in topology.links)
    producers = tuple(
        replace(_producer(random, number, (name,), (topic,), plan.break_seconds), messages=60, place=name)
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
            (name, dict(plan.disks)[name] if name in plan.regions else _disk(random)) for name in names
        ),
        clocks=(),
    )


def _takeovers(random: Random, plan: Plan) -> Plan:
    """One region's log lies elsewhere, and the region is replaced again and again while much is on its way to it."""
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
        disks=(*(one for one in plan.disks if one[0] != region), (region, _remote(random))),
    )


def _anything(seed: int, random: Random) -> Plan:
    topology = _topology(random, random.choices((1, 2, 3, 4, 5), (2, 8, 8, 2, 1))[0])
    names = topology.region_names
    topics = ("orders", "events")[: random.choices((1, 2), (4, 1))[0]]
    break_seconds = random.uniform(4, 14)
    producers = tuple(
        _producer(random, number, names, topics, break_seconds) for number in range(random.randint(1, 4))
    )
    consumers = _consumers(random, names, topics, break_seconds)
    readers = tuple(
        ReaderPlan(
            f"reader-{number}", random.choice(names), random.choice(topics), random.choice((3, 20, 1000))
        )
        for number in range(random.choice((0, 0, 1, 1, 2)))
    )
    clients = [one.name for part in (producers, consumers, readers) for one in part]
    elsewhere = random.choice((0.0, 0.0, 0.0, 0.5, 1.0))
    disks = {name: _remote(random) if random.random() < elsewhere else _disk(random) for name in names}
    remote = tuple(name for name in names if isinstance(disks[name], RemoteFaults))
    faults = [
        draw_fault(random, names, clients, break_seconds, remote=remote)
        for _ in range(random.choice((0, 1, 2, 3, 4, 6, 9)))
    ]
    if random.random() < 0.4:
        faults += _squeeze(random, random.choice(names), break_seconds)
    if random.random() < 0.4:
        forgetful = [one for one in producers if not one.keeps_outbox]
        faults += _comeback(random, random.choice(forgetful or producers), break_seconds)
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


def _topology(random: Random, size: int, count: int | None = None) -> Topology:
    """Regions in so many clusters; None: as chance has it."""
    names = REGION_NAMES[:size]
    settings = _settings(random)
    count = random.randint(1, min(3, size)) if count is None else count
    clusters: dict[str, list[Region]] = {f"cluster-{number}": [] for number in range(count)}
    for number, name in enumerate(names):
        cluster = f"cluster-{number if number < count else random.randrange(count)}"
        region = Region(name, cluster, host=name, service_port=SERVICE_PORT, settings=settings)
        clusters[cluster].append(region)
    return Topology(
        name="swarm",
        path=Path("topology.yaml"),
        clusters=tuple(Cluster(name, tuple(members)) for name, members in clusters.items()),
        links=tuple(_link(random, one, other) for one in names for other in names if one != other),
        namespaces=(NamespaceConfig(NAMESPACE, names, deduplication=random.random() < 0.85),),
    )


def _link(random: Random, source: str, target: str) -> Link:
    latency = random.choice((0.5, 5.0, 20.0, 80.0, 150.0)) * random.uniform(0.5, 1.5)
    jitter = latency * random.choice((0.0, 0.1, 1.0))
    bandwidth = random.choices((None, 20_000, 200_000), (8, 1, 1))[0]
    return Link(source, target, LinkShape(round(latency, 3), round(jitter, 3), bandwidth))


def _settings(random: Random) -> BrokerSettings:
    choose = random.choice
    return BrokerSettings(
        keep_alive_interval_ms=choose((1_000, 3_000, 30_000)),
        peer_keep_alive_interval_ms=choose((500, 1_000)),
        peer_reconnect_backoff_ms=choose((5, 50)),
        replication_window_entries=choose((1, 3, 10, 1_000)),
        replication_window_bytes=choose((300, 2_000, 8_388_608)),
        snapshot_interval_ms=choose((50, 300, 1_000)),
        snapshot_timeout_ms=choose((6_000, 30_000)),
        snapshot_cache_size=choose((1, 3, 30)),
        failover_delay_ms=choose((0, 50, 500)),
        max_unacked_messages_per_consumer=choose((3, 50, 50_000)),
        region_tail_bytes=choose((1, 1_500, 20_000, 67_108_864)),
        state_checkpoint_entries=choose((1, 5, 20, 100)),
    )


def _disk(random: Random) -> DiskFaults:
    return DiskFaults(
        commit_seconds=random.choice(((0.0002, 0.002), (0.002, 0.02), (0.01, 0.06))),
        stall_probability=random.choice((0.0, 0.0, 0.03)),
        stall_seconds=(0.05, 0.4),
        read_seconds=random.choice(((0.0, 0.0), (0.001, 0.02), (0.01, 0.15))),
        id_jump_probability=random.choice((0.0, 0.0, 0.2)),
    )


def _remote(random: Random) -> RemoteFaults:
    return RemoteFaults(
        commit_seconds=random.choice(((0.0005, 0.004), (0.002, 0.02), (0.01, 0.2))),
        stall_probability=random.choice((0.0, 0.0, 0.03)),
        stall_seconds=(0.05, 0.4),
        read_seconds=random.choice(((0.0, 0.0), (0.001, 0.02), (0.01, 0.15))),
        id_jump_probability=random.choice((0.0, 0.2)),
        lost_answer_probability=random.choice((0.0, 0.0, 0.05)),
        gives_up_seconds=random.choice((None, None, 1.0)),
        takeover_seconds=random.choice(((0.0, 0.02), (0.0, 0.3))),
    )


def _producer(
    random: Random, number: int, names: tuple[str, ...], topics: tuple[str, ...], seconds: float
) -> ProducerPlan:
    region = random.choice(names)
    burst = random.choice((1, 3, 8))
    messages = random.randint(5, 80)
    batching = None
    if random.random() < 0.4:
        batching = Batching(random.choice((2, 5, 100)), delay_ms_max=random.choice((1.0, 20.0)))
    return ProducerPlan(
        name=f"producer-{number}",
        region=region,
        topic=random.choice(topics),
        messages=messages,
        place=random.choice((region, region, region, random.choice(names))),
        burst=burst,
        pause_seconds=round(seconds * burst / messages * random.uniform(0.3, 1.1), 4),
        batching=batching,
        payload_bytes=random.choice((40, 40, 200, 1_000)),
        choosy=random.choice((0.0, 0.0, 0.3)),
        # What is sent again in other batches than before overlaps, and what overlaps is stored (core.deduplication).
        keeps_outbox=batching is None and random.random() < 0.6,
    )


def _consumers(
    random: Random, names: tuple[str, ...], topics: tuple[str, ...], seconds: float
) -> tuple[ConsumerPlan, ...]:
    made: list[ConsumerPlan] = []
    for number in range(random.randint(1, 3)):
        subscription, topic = f"sub-{number}", random.choice(topics)
        type_ = random.choice(("EXCLUSIVE", "SHARED", "FAILOVER"))
        region, replicated = random.choice(names), random.random() < 0.7
        several = type_ != "EXCLUSIVE" and random.random() < 0.5
        moves = []
        if not several and len(names) > 1 and random.random() < 0.7:
            moves = [
                (round(random.uniform(0.5, seconds), 3), random.choice(names))
                for _ in range(random.randint(1, 3))
            ]
        made += [
            ConsumerPlan(
                name=f"consumer-{number}-{index}",
                subscription=subscription,
                topic=topic,
                region=region,
                type=type_,
                replicated=replicated,
                moves=tuple(sorted(moves)),
                cumulative=type_ != "SHARED" and random.random() < 0.4,
                confirmed=random.choice((0.0, 0.3, 1.0)),
                refuses=random.choice((0.0, 0.0, 0.1)),
                holds=random.choice((0, 0, 2, 6)),
                think_seconds=random.choice((0.0, 0.01, 0.1)),
                queue=random.choice((1, 5, 20, 1000)),
            )
            for index in range(random.randint(2, 3) if several else 1)
        ]
    return tuple(made)


def draw_fault(
    random: Random,
    regions: tuple[str, ...],
    clients: list[str],
    seconds: float,
    *,
    remote: tuple[str, ...] = (),
) -> Fault:
    """Something that goes wrong for a while. Most are short, some last to the end. `remote`: regions whose log lies
    elsewhere."""
    at = round(random.uniform(0.1, seconds), 3)
    lasts = round(min(random.expovariate(1.0) * random.choice((0.1, 1.0, 4.0)), seconds), 3)
    region, client = random.choice(regions), random.choice(clients)
    other = random.choice([name for name in regions if name != region] or [region])
    one_way = random.random() < 0.4
    choices: list[tuple[int, Callable[[], Fault]]] = [
        (6, lambda: Kill(at, lasts, region)),
        (3, lambda: PowerOff(at, lasts, region)),
        (3, lambda: Pause(at, lasts, region)),
        (2, lambda: FullDisk(at, lasts, region)),
        (4, lambda: FailingDisk(at, lasts, region, random.choice((0.1, 0.5, 1.0)))),
        (3, lambda: SlowDisk(at, lasts, region, random.choice((0.05, 0.3, 1.0)))),
        (1, lambda: ClockJump(at, lasts, region, random.choice((-3_600_000, -5_000, 5_000, 3_600_000)))),
        (4, lambda: KillClient(at, lasts, client, random.random() < 0.4)),
        (1, lambda: PauseClient(at, lasts, client)),
    ]
    if len(regions) > 1:
        choices += [
            (6, lambda: Cut(at, lasts, region, other, one_way)),
            (4, lambda: Hold(at, lasts, region, other, one_way)),
            (3, lambda: Reset(at, lasts, region, other)),
        ]
    if region in remote:
        limit = random.choice((None, 0.3, 1.0))
        choices += [
            (6, lambda: Replace(at, lasts, region)),
            (3, lambda: LogAway(at, lasts, region)),
            (4, lambda: LostAnswers(at, lasts, region, random.choice((0.1, 0.5)), limit)),
        ]
    return random.choices([make for _, make in choices], [weight for weight, _ in choices])[0]()


def _squeeze(random: Random, region: str, seconds: float, rounds: int = 2) -> list[Fault]:
    """Troubles that come in company: while the disk is slow connections break, so that things are sent again before the
    first time is durable; then the region dies with all of it on the way. And once more."""
    at = random.uniform(0.3, seconds * 0.6)
    faults: list[Fault] = [SlowDisk(round(at, 3), 12.0, region, random.choice((0.2, 1.0)))]
    for _ in range(rounds):
        breaks = at + random.uniform(0.2, 0.8)
        if random.random() < 0.6:
            faults.append(Reset(round(breaks, 3), 0.0, region, region))
        dies = breaks + random.uniform(0.1, 0.6)
        at = dies + random.uniform(0.02, 0.2)
        faults.append(Kill(round(dies, 3), round(at - dies, 3), region))
    return faults


def _comeback(random: Random, producer: ProducerPlan, seconds: float) -> list[Fault]:
    """A producer dies and is back at once, again and again, while what it sent before is still being written."""
    at = round(random.uniform(0.3, seconds * 0.8), 3)
    return [
        SlowDisk(at, round(random.uniform(1.0, 3.0), 3), producer.region, 0.5),
        *(
            KillClient(
                round(at + random.uniform(0.0, 2.0), 3), round(random.uniform(0.01, 0.1), 3), producer.name
            )
            for _ in range(4)
        ),
    ]


def _drill(seed: int, random: Random) -> Plan:
    """Three regions, 300 messages in 30 seconds, one kill, one cut, a consumer that moves."""
    names = REGION_NAMES[:3]
    first, second, third = random.sample(names, 3)
    producers = tuple(
        ProducerPlan(f"producer-{name}", name, "orders", 100, burst=10, pause_seconds=2.6) for name in names
    )
    moves = ((random.uniform(8, 20), second),)
    consumer = ConsumerPlan(
        "consumer", "billing", "orders", first, replicated=True, moves=moves, confirmed=0.0, think_seconds=0.0
    )
    return Plan(
        seed=seed,
        kind="drill",
        topology=simple_topology(names, settings=BrokerSettings(snapshot_interval_ms=5_000)),
        topics=("orders",),
        producers=producers,
        consumers=(consumer,),
        faults=(
            Kill(random.uniform(5, 15), random.uniform(0.5, 5), first),
            Cut(random.uniform(5, 20), random.uniform(0.5, 5), second, third),
        ),
        break_seconds=28.0,
    )


def _quiet(seed: int, random: Random) -> Plan:
    """Three regions, a message now and then, nothing goes wrong."""
    names = REGION_NAMES[:3]
    producer = ProducerPlan("producer", "us", "orders", 10, burst=1, pause_seconds=10.0)
    consumer = ConsumerPlan("consumer", "billing", "orders", "eu", "EXCLUSIVE", True)
    return Plan(
        seed=seed,
        kind="quiet",
        topology=simple_topology(names),
        topics=("orders",),
        producers=(producer,),
        consumers=(consumer,),
        break_seconds=120.0,
    )


def _hold_key(seed: int, random: Random) -> Plan:
    """Programs with transaction keys, in one to three regions, and hardly anybody else."""
    topology = _topology(random, random.choices((1, 2, 3), (4, 3, 1))[0])
    names = topology.region_names
    plan = Plan(
        seed=seed,
        kind=holding_keys.WORD.name,
        topology=topology,
        topics=(holding_keys.INBOX,),
        producers=(),
        consumers=(),
        disks=tuple((name, _remote(random) if random.random() < 0.2 else _disk(random)) for name in names),
        break_seconds=random.uniform(4, 10),
    )
    feeders = tuple(holding_keys.feeder(random, plan, number) for number in range(random.choice((1, 1, 2))))
    plan = holding_keys.WORD.draw(random, replace(plan, producers=feeders))
    return replace(plan, heal_seconds_max=plan.heal_seconds_max + _carrying_seconds(plan))


def _change_metadata_published_first(seed: int, random: Random) -> Plan:
    """The same with the proposal's order (`metadata_order: upstream`)."""
    plan = _change_metadata(seed, random)
    topology = replace(
        plan.topology, compatibility={**plan.topology.compatibility, "metadata_order": "upstream"}
    )
    return replace(plan, kind=changing_metadata.PUBLISHED_FIRST, topology=topology)


def _change_metadata(seed: int, random: Random) -> Plan:
    """Two to five clusters that share their metadata, and administrators."""
    size = random.choices((2, 3, 4, 5), (4, 4, 2, 1))[0]
    topology = _topology(random, size, random.randint(2, size))
    names = topology.region_names
    plan = Plan(
        seed=seed,
        kind=changing_metadata.WORD.name,
        topology=topology,
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple((name, _remote(random) if random.random() < 0.1 else _disk(random)) for name in names),
        break_seconds=random.uniform(4, 12),
    )
    return changing_metadata.WORD.draw(random, plan)


def _with_right_clocks(word: Word, topic: str, seed: int, random: Random) -> Plan:
    """A world of one word, with whatever goes wrong there; but everybody's clock is right."""
    topology = _topology(random, random.choices((1, 2, 3), (3, 3, 1))[0])
    names = topology.region_names
    plan = Plan(
        seed=seed,
        kind=word.name,
        topology=topology,
        topics=(topic,),
        producers=(),
        consumers=(),
        disks=tuple((name, _disk(random)) for name in names),
        break_seconds=random.uniform(4, 10),
    )
    plan = word.draw(random, plan)
    clients = [one.name for one in plan.consumers]
    faults = [draw_fault(random, names, clients, plan.break_seconds) for _ in range(random.randint(2, 6))]
    faults = [one for one in faults if not isinstance(one, ClockJump)]
    return replace(plan, faults=tuple(sorted(faults, key=lambda one: one.at_seconds)))


def _trim(seed: int, random: Random) -> Plan:
    """Acknowledged messages go at once, with whatever goes wrong there; but everybody's clock is right."""
    topology = _topology(random, random.choices((1, 2, 3), (2, 4, 2))[0])
    names = topology.region_names
    namespace = replace(topology.namespaces[0], retention_minutes=0, retention_megabytes=0)
    topology = with_settings(topology, housekeeping_interval_ms=random.choice((50, 300, 1_000)))
    plan = Plan(
        seed=seed,
        kind=trimming.NAME,
        topology=replace(topology, namespaces=(namespace,)),
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple((name, _disk(random)) for name in names),
        break_seconds=random.uniform(4, 10),
    )
    plan = _with_faults_elsewhere(plan, random)
    return trimming.WORD.draw(random, plan)


def _expire(word: Word, seed: int, random: Random) -> Plan:
    """Policies of topics, topics that are deleted, and whatever goes wrong there; but everybody's clock
    is right."""
    topology = _topology(random, random.choices((1, 2, 3), (2, 4, 2))[0])
    topology = with_settings(topology, housekeeping_interval_ms=random.choice((50, 300, 1_000)))
    plan = Plan(
        seed=seed,
        kind=word.name,
        topology=topology,
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple((name, _disk(random)) for name in topology.region_names),
        break_seconds=random.uniform(4, 10),
    )
    return _with_faults_elsewhere(word.draw(random, plan), random)


def _rank(seed: int, random: Random) -> Plan:
    """Consumers may hold as many messages as they like: permits alone decide who can take something."""
    plan = _expire(ranking.WORD, seed, random)
    return replace(plan, topology=with_settings(plan.topology, max_unacked_messages_per_consumer=50_000))


def _pass_by(seed: int, random: Random) -> Plan:
    """As `_expire`; and connections break with much on its way."""
    plan = _expire(passing_by.WORD, seed, random)
    breaks = [
        Reset(round(random.uniform(act.at_seconds, plan.break_seconds), 3), 0.0, act.places[0], act.places[1])
        for act in plan.acts
        for _ in range(3)
        if len(set(act.places)) > 1
    ]
    return replace(plan, faults=tuple(sorted((*plan.faults, *breaks), key=lambda one: one.at_seconds)))


def _retain(seed: int, random: Random) -> Plan:
    """As `_expire`; but large messages pass links in no time."""
    plan = _expire(retaining.WORD, seed, random)
    links = tuple(
        replace(one, shape=replace(one.shape, bandwidth_bytes_per_second=None)) for one in plan.topology.links
    )
    return replace(plan, topology=replace(plan.topology, links=links))


def _carry(seed: int, random: Random) -> Plan:
    """Several regions, mostly of several clusters, that mostly keep nothing, and whatever goes wrong there; but
    everybody's clock is right."""
    size = random.choices((2, 3), (3, 2))[0]
    topology = _topology(random, size, random.choices((None, size), (1, 2))[0])
    namespace = topology.namespaces[0]
    if random.random() < 0.8:
        namespace = replace(namespace, retention_minutes=0, retention_megabytes=0)
    topology = with_settings(topology, housekeeping_interval_ms=random.choice((50, 300, 1_000)))
    plan = Plan(
        seed=seed,
        kind=carrying.WORD.name,
        topology=replace(topology, namespaces=(namespace,)),
        topics=(),
        producers=(),
        consumers=(),
        disks=tuple((name, _disk(random)) for name in topology.region_names),
        break_seconds=random.uniform(4, 10),
    )
    return _with_faults_elsewhere(carrying.WORD.draw(random, plan), random)


def _with_faults_elsewhere(plan: Plan, random: Random) -> Plan:
    """Nothing happens to clocks and to programs."""
    faults = [draw_fault(random, plan.regions, [""], plan.break_seconds) for _ in range(random.randint(1, 6))]
    faults = [one for one in faults if not isinstance(one, ClockJump | KillClient | PauseClient)]
    return replace(plan, faults=tuple(sorted(faults, key=lambda one: one.at_seconds)))


KINDS: dict[str, Callable[[int, Random], Plan]] = {
    "swarm": _swarm,
    "drill": _drill,
    "quiet": _quiet,
    holding_keys.WORD.name: _hold_key,
    delaying.NAME: partial(_with_right_clocks, delaying.WORD, delaying.TOPIC),
    spreading.WORD.name: partial(_expire, spreading.WORD),
    compacting.NAME: partial(_with_right_clocks, compacting.WORD, compacting.TOPIC),
    trimming.NAME: _trim,
    expiring.WORD.name: partial(_expire, expiring.WORD),
    carrying.WORD.name: _carry,
    keeping_away.NAME: partial(_expire, keeping_away.WORD),
    giving_up.NAME: partial(_expire, giving_up.WORD),
    sticking.NAME: partial(_with_right_clocks, sticking.WORD, sticking.TOPIC),
    ranking.NAME: _rank,
    limiting.WORD.name: partial(_expire, limiting.WORD),
    cutting_up.NAME: partial(_expire, cutting_up.WORD),
    passing_by.WORD.name: _pass_by,
    retaining.WORD.name: _retain,
    finishing.WORD.name: partial(_expire, finishing.WORD),
    changing_metadata.WORD.name: _change_metadata,
    changing_metadata.PUBLISHED_FIRST: _change_metadata_published_first,
}
"""By the name that `geoemu simulate` takes."""
