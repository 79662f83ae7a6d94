"""Draw the faults of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from emulator.model.frame_faults import BETWEEN_REGIONS, MARKERS, FrameAction, FrameFault
from emulator.model.protocol_events import PROTOCOL_EVENTS
from tests.swarm.faults import (
    AtState,
    ClockJump,
    Cut,
    FailingDisk,
    Fault,
    FrameFaults,
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
from tests.swarm.plan import Plan, ProducerPlan

FREQUENT_FRAMES = ("send", "send_receipt", *MARKERS)


def draw_fault(
    random: Random,
    regions: tuple[str, ...],
    clients: list[str],
    seconds: float,
    *,
    remote: tuple[str, ...] = (),
) -> Fault:
    """Draw a fault. Most are short; some last until the world heals. `remote`: regions with a remote log."""
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


def draw_frame_faults(random: Random, regions: tuple[str, ...], seconds: float, number: int) -> FrameFaults:
    """Draw faults of frames on a link. Half of them affect what is most frequent: messages, markers and receipts."""
    source, target = random.sample(regions, 2)
    at = round(random.uniform(0.0, seconds), 3)
    faults = []
    for index in range(random.choice((1, 1, 2, 3))):
        what = (
            random.choice(FREQUENT_FRAMES) if random.random() < 0.5 else random.choice(tuple(BETWEEN_REGIONS))
        )
        action = random.choice(tuple(FrameAction))
        by_ms = float(random.choice((1, 50, 2_000, 20_000))) if action is FrameAction.DELAY else 0.0
        count, nth = random.choice((1, 1, 2, 20)), random.choice((1, 1, 2, 5))
        faults.append(FrameFault(action, what, count, nth, by_ms, 100 * number + index))
    return FrameFaults(at, 0.0, source, target, one_way=True, faults=tuple(faults))


def squeeze(random: Random, region: str, seconds: float, rounds: int = 2) -> list[Fault]:
    """Draw correlated faults of one region: its disk is slow while connections break, so that clients and replicators
    send again before the first append is durable; then the region is killed with all appends pending. Repeat `rounds`
    times."""
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


def comeback(random: Random, producer: ProducerPlan, seconds: float) -> list[Fault]:
    """Draw four short kills of a producer while its region's disk is slow: it restarts before its earlier messages are
    durable."""
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


def draw_state_fault(random: Random, plan: Plan, events: tuple[str, ...]) -> AtState:
    """Draw a fault that begins when a region reaches a state: mostly of this region, directly after the event."""
    seconds = plan.break_seconds
    at, lasts = round(random.uniform(0.0, seconds * 0.6), 3), round(random.expovariate(1.0), 3)
    region, event = random.choice(plan.regions), random.choice(events)
    others = [name for name in plan.regions if name != region]
    struck = random.choice(others) if others and random.random() < 0.25 else region
    other = random.choice([name for name in plan.regions if name != struck] or [struck])
    one_way = random.random() < 0.4
    choices: list[tuple[int, Fault]] = [
        (6, Kill(at, lasts, struck)),
        (4, PowerOff(at, lasts, struck)),
        (3, Pause(at, lasts, struck)),
        (2, Reset(at, lasts, struck, other)),
        (3, Cut(at, lasts, struck, other, one_way)),
        (2, Hold(at, lasts, struck, other, one_way)),
        (2, FailingDisk(at, lasts, struck, 1.0)),
    ]
    fault = random.choices([one for _, one in choices], [weight for weight, _ in choices])[0]
    delay = random.choice((0.0, 0.0, 0.0, 0.001, 0.02))
    return AtState(at, lasts, region, event, random.choice((1, 1, 2, 3, 5)), fault, delay)


def states_of(plan: Plan) -> tuple[str, ...]:
    """Return the protocol events that the regions of a plan may count."""
    settings = plan.topology.clusters[0].regions[0].settings
    shares = len(plan.regions) > 1 and any(one.replicated for one in plan.consumers)
    transacts = bool(plan.workers) or any(act.workload == "transact" for act in plan.acts)
    found = {
        ("snapshot_", "update_"): shares,
        ("takeover",): bool(plan.claimants),
        ("transaction_",): transacts,
        ("metadata_",): bool(settings.configuration_metadata_sync_event_topic),
    }
    prefixes = tuple(one for names, possible in found.items() if possible for one in names)
    return tuple(event for event in PROTOCOL_EVENTS if event.startswith(prefixes))


def with_faults_elsewhere(plan: Plan, random: Random) -> Plan:
    """Return the plan with one to six random faults, none of them of clocks or programs."""
    faults = [draw_fault(random, plan.regions, [""], plan.break_seconds) for _ in range(random.randint(1, 6))]
    faults = [one for one in faults if not isinstance(one, ClockJump | KillClient | PauseClient)]
    return replace(plan, faults=tuple(sorted(faults, key=lambda one: one.at_seconds)))
