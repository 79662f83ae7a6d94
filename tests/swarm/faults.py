"""The faults of a run. A fault is a value with methods that begin and end it in the world.

To add one, write a class here and a line in `nemesis.draw_fault`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from emulator.model.frame_faults import FrameFault

if TYPE_CHECKING:
    from tests.swarm.world import SwarmWorld

STATE_POLL_SECONDS = 0.2
"""Interval at which a wait for a state notices that the region was started again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins `at_seconds` into the break phase, and ends `lasts_seconds` later or when the world heals."""

    at_seconds: float
    lasts_seconds: float

    op: ClassVar[str] = "fault"
    end_op: ClassVar[str | None] = None

    def begin(self, world: SwarmWorld) -> None:
        raise NotImplementedError

    def end(self, world: SwarmWorld) -> None:
        """End the fault. Called once, even if another event has already ended it."""

    @property
    def places(self) -> tuple[str, ...]:
        """The regions or clients that the fault affects."""
        return ()

    def __str__(self) -> str:
        about = " and ".join(self.places)
        return f"{self.at_seconds:.2f} s: {self.op} {about}, for {self.lasts_seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class RegionFault(Fault):
    region: str

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region,)


@dataclass(frozen=True, slots=True)
class Kill(RegionFault):
    """Kill the broker with SIGKILL; it starts again at the end."""

    op = "kill"
    end_op = "start"

    def begin(self, world: SwarmWorld) -> None:
        world.kill(self.region)

    def end(self, world: SwarmWorld) -> None:
        world.start(self.region)


@dataclass(frozen=True, slots=True)
class PowerOff(RegionFault):
    """Power off the region's machine: its peers receive no TCP reset."""

    op = "kill"
    end_op = "start"

    def begin(self, world: SwarmWorld) -> None:
        world.power_off(self.region)

    def end(self, world: SwarmWorld) -> None:
        world.start(self.region)

    def __str__(self) -> str:
        return f"{self.at_seconds:.2f} s: {self.region} loses power, for {self.lasts_seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class Pause(RegionFault):
    """Stop the broker's process with SIGSTOP; SIGCONT at the end."""

    op = "pause"
    end_op = "resume"

    def begin(self, world: SwarmWorld) -> None:
        world.pause(self.region)

    def end(self, world: SwarmWorld) -> None:
        world.resume(self.region)


@dataclass(frozen=True, slots=True)
class Replace(RegionFault):
    """Pause a region's broker, start another on the same log, and resume the former one at the end. Requires a remote
    log."""

    op = "pause and replace"
    end_op = "wake up the former"

    def begin(self, world: SwarmWorld) -> None:
        world.pause(self.region)
        world.replace(self.region)

    def end(self, world: SwarmWorld) -> None:
        world.resume(self.region)


@dataclass(frozen=True, slots=True)
class LogAway(RegionFault):
    """Cut the connection between a region and its remote log."""

    op = "cut from its log"
    end_op = "heal the way to the log of"

    def begin(self, world: SwarmWorld) -> None:
        world.remote_log(self.region).make_unreachable()

    def end(self, world: SwarmWorld) -> None:
        world.remote_log(self.region).make_reachable()


@dataclass(frozen=True, slots=True)
class LostAnswers(RegionFault):
    """Lose calls to a remote log, or their responses. With `gives_up_seconds` the region's store fails a call after
    that time."""

    probability: float = 0.3
    gives_up_seconds: float | None = None

    op = "lose answers of the log of"
    end_op = "deliver all answers of the log of"

    def begin(self, world: SwarmWorld) -> None:
        log = world.remote_log(self.region)
        log.faults = replace(
            log.faults, lost_answer_probability=self.probability, gives_up_seconds=self.gives_up_seconds
        )

    def end(self, world: SwarmWorld) -> None:
        log = world.remote_log(self.region)
        log.faults = replace(log.faults, lost_answer_probability=0.0)


@dataclass(frozen=True, slots=True)
class LinkFault(Fault):
    source: str
    target: str
    one_way: bool = False

    @property
    def places(self) -> tuple[str, ...]:
        return (self.source, self.target)

    def end(self, world: SwarmWorld) -> None:
        world.heal(self.source, self.target)

    def __str__(self) -> str:
        way = f"{self.source} {'->' if self.one_way else '<->'} {self.target}"
        return f"{self.at_seconds:.2f} s: {self.op} {way}, for {self.lasts_seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class Cut(LinkFault):
    op = "cut"
    end_op = "heal"

    def begin(self, world: SwarmWorld) -> None:
        world.cut(self.source, self.target, one_way=self.one_way)


@dataclass(frozen=True, slots=True)
class Hold(LinkFault):
    op = "hold"
    end_op = "heal"

    def begin(self, world: SwarmWorld) -> None:
        world.hold(self.source, self.target, one_way=self.one_way)


@dataclass(frozen=True, slots=True)
class Reset(LinkFault):
    """Reset every open connection between two places, at one moment."""

    op = "reset"

    def begin(self, world: SwarmWorld) -> None:
        world.simulation.network.reset(self.source, self.target)

    def end(self, world: SwarmWorld) -> None:
        pass


@dataclass(frozen=True, slots=True)
class FrameFaults(LinkFault):
    """Drop, delay, duplicate or reorder frames of a link; until the world heals, if they do not come."""

    faults: tuple[FrameFault, ...] = ()

    op = "arm faults of frames"

    def begin(self, world: SwarmWorld) -> None:
        world.arm(self.source, self.target, *self.faults)

    def end(self, world: SwarmWorld) -> None:
        pass

    def __str__(self) -> str:
        what = " and ".join(map(str, self.faults))
        return f"{self.at_seconds:.2f} s: {what} on {self.source} -> {self.target}"


@dataclass(frozen=True, slots=True)
class FullDisk(RegionFault):
    op = "fill the disk of"
    end_op = "make room on"

    def begin(self, world: SwarmWorld) -> None:
        world.regions[self.region].medium.fill()

    def end(self, world: SwarmWorld) -> None:
        world.regions[self.region].medium.make_room()


@dataclass(frozen=True, slots=True)
class FailingDisk(RegionFault):
    """Fail each commit with a probability."""

    probability: float = 0.3

    op = "fail writes of"
    end_op = "repair the disk of"

    def begin(self, world: SwarmWorld) -> None:
        disk = world.regions[self.region].medium
        disk.faults = replace(disk.faults, failure_probability=self.probability)

    def end(self, world: SwarmWorld) -> None:
        disk = world.regions[self.region].medium
        disk.faults = replace(disk.faults, failure_probability=0.0)


@dataclass(frozen=True, slots=True)
class SlowDisk(RegionFault):
    """Delay every commit by up to `seconds`."""

    seconds: float = 0.2

    op = "slow the disk of"
    end_op = "speed up the disk of"

    def begin(self, world: SwarmWorld) -> None:
        disk = world.regions[self.region].medium
        disk.faults = replace(
            disk.faults, stall_probability=1.0, stall_seconds=(self.seconds / 2, self.seconds)
        )

    def end(self, world: SwarmWorld) -> None:
        disk = world.regions[self.region].medium
        disk.faults = replace(disk.faults, stall_probability=0.0)


@dataclass(frozen=True, slots=True)
class ConfigurationAway(Fault):
    """Make a cluster's configuration store unreachable; its regions continue with the metadata that they have."""

    cluster: str

    op = "take away the configuration of"
    end_op = "bring back the configuration of"

    @property
    def places(self) -> tuple[str, ...]:
        return (self.cluster,)

    def begin(self, world: SwarmWorld) -> None:
        world.configurations[self.cluster].faults.is_unreachable = True

    def end(self, world: SwarmWorld) -> None:
        world.configurations[self.cluster].repair()


@dataclass(frozen=True, slots=True)
class ConfigurationLosesAnswers(Fault):
    """Lose responses of a cluster's configuration store after it has executed the request."""

    cluster: str
    probability: float = 0.3

    op = "lose answers of the configuration of"
    end_op = "deliver all answers of the configuration of"

    @property
    def places(self) -> tuple[str, ...]:
        return (self.cluster,)

    def begin(self, world: SwarmWorld) -> None:
        world.configurations[self.cluster].faults.lost_answer_probability = self.probability

    def end(self, world: SwarmWorld) -> None:
        world.configurations[self.cluster].faults.lost_answer_probability = 0.0


@dataclass(frozen=True, slots=True)
class ClockJump(RegionFault):
    """Move the wall clock of a region forward or back, permanently."""

    milliseconds: float = 60_000

    op = "set the clock of"

    def begin(self, world: SwarmWorld) -> None:
        world.regions[self.region].host.wall_clock_ms.jump(self.milliseconds)


@dataclass(frozen=True, slots=True)
class KillClient(Fault):
    """Kill a client, and start it again at the end. `silently`: its peers receive no TCP reset."""

    client: str
    silently: bool = False

    op = "kill"
    end_op = "start"

    @property
    def places(self) -> tuple[str, ...]:
        return (self.client,)

    def begin(self, world: SwarmWorld) -> None:
        world.actors[self.client].kill(silently=self.silently)

    def end(self, world: SwarmWorld) -> None:
        world.actors[self.client].begin()


@dataclass(frozen=True, slots=True)
class PauseClient(Fault):
    """Pause a client's process: it neither receives nor sends anything."""

    client: str

    op = "pause"
    end_op = "resume"

    @property
    def places(self) -> tuple[str, ...]:
        return (self.client,)

    def begin(self, world: SwarmWorld) -> None:
        world.actors[self.client].pause()

    def end(self, world: SwarmWorld) -> None:
        world.actors[self.client].resume()


@dataclass(frozen=True, slots=True)
class AtState(RegionFault):
    """Begin another fault when a region has counted `count` more protocol events than `at_seconds` into the break
    phase, or since its next start. The runner waits for the state; the fault then lasts as long as this one."""

    event: str
    count: int
    fault: Fault
    delay_seconds: float = 0.0
    """Time from the state to the fault; 0: no other event of the region is between them."""

    op = "wait for a state of"

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.region, *self.fault.places)))

    def begin(self, world: SwarmWorld) -> None:
        pass

    def end(self, world: SwarmWorld) -> None:
        pass

    async def reached(self, world: SwarmWorld, until_seconds: float) -> bool:
        """Wait for the state up to this virtual time, and return whether the region reached it."""
        simulation, region = world.simulation, world.regions[self.region]
        events, before = None, 0
        while simulation.now < until_seconds:
            broker = region.broker
            if broker is None:
                await asyncio.sleep(STATE_POLL_SECONDS)
                continue
            present = broker.resources.protocol_events
            if present is not events:
                before = present.count(self.event) if events is None else 0
                events = present
            seconds = min(STATE_POLL_SECONDS, until_seconds - simulation.now)
            if await present.reached(self.event, before + self.count, seconds=seconds):
                await asyncio.sleep(self.delay_seconds)
                return True
        return False

    def __str__(self) -> str:
        delay = f" for {self.delay_seconds:g} s" if self.delay_seconds else ""
        what = f"{self.fault.op} {' and '.join(self.fault.places)}, for {self.lasts_seconds:.2f} s"
        return f"{self.at_seconds:.2f} s: once {self.region} has counted {self.count} more {self.event}{delay}: {what}"
