"""The parameters of a program of the workload `partition-growth`, and helpers of its producers and consumers."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace

from emulator.client import Batching, Client
from emulator.net.http import HttpResponse, NoHttpResponse
from emulator.simulation.evidence import full
from emulator.simulation.world import CLIENT_SETTINGS
from tests.swarm.topics import DELETED
from tests.swarm.workload import ActContext
from tests.swarm.workloads.partition_growth.ledger import Ledger

CONVERGENCE_SECONDS = 60.0
"""Deadline for convergence after healing, in virtual seconds."""
AGAIN_SECONDS = 0.2
"""Pause before a request that failed, or received no response, is repeated."""
PARTITIONS, LIST, PATTERN, ONE = "partitions", "list", "pattern", "one"
"""What a subscription consumes: the partitioned topic, a list, a pattern, or one topic without partitions."""
LISTED, OTHER = "listed", "other"


@dataclass(frozen=True, slots=True)
class Life:
    """One producer of a writer, from opening to closing."""

    begins_seconds: float
    place: str
    """The region in which the producer publishes."""
    topic: str
    """Short name of the topic, as in `Scene.topic`."""
    messages: int
    pause_seconds: float
    keys: int
    deletes: float
    """Probability that a message deletes its key."""
    batching: Batching | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A subscription and its consumers."""

    subscription: str
    of: str
    type_: str
    consumers: int
    queue: int
    asks_seconds: float
    """Interval at which the client requests the number of partitions; for lists of topics ten times as long."""
    away: tuple[float, float] | None = None
    """(time, duration) of an absence of the consumers; None: they stay."""
    paused_seconds: float = 0.0
    """Time for which each consumer starts paused; 0: it does not."""


@dataclass(frozen=True, slots=True)
class Growth:
    at_seconds: float
    region: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Remaking:
    """A topic matched by the pattern that is created, deleted by force while consumers read it, and created again."""

    at_seconds: float
    messages: int
    """Number of messages before and again after the deletion."""


class Scene:
    """The environment of one program: its topics, clients, admin requests and deadlines."""

    def __init__(self, context: ActContext, region: str, reading: str, faults_end_seconds: float) -> None:
        self.context = context
        self.reading = reading
        """The region in which the program reads."""
        self.faults_end_seconds = faults_end_seconds
        self.base = full(context.name)
        """Full name of the partitioned topic."""
        self.ledger = Ledger()
        self.host = context.world.client_host(context.name, region)
        self._clients = 0

    # Topics.

    def topic(self, what: str) -> str:
        """Return the full name of one of the program's topics by its short name; empty: the partitioned topic."""
        if what == OTHER:
            return f"{self.base}x"
        if what.startswith("gone"):
            return f"{DELETED}{self.context.name}-{what}"
        return f"{self.base}-{what}" if what else self.base

    def topics(self, of: str) -> str | list[str] | re.Pattern[str]:
        """Return the topic argument of `subscribe` for a subscription of this kind."""
        if of == PARTITIONS:
            return self.base
        if of == LIST:
            return [self.base, self.topic(LISTED)]
        if of == ONE:
            return self.topic(LISTED)
        namespace, _, name = self.base.rpartition("/")
        return re.compile(rf"{namespace}/(deleted-)?{re.escape(name)}(-[a-z0-9]+)?")

    def fits(self, of: str, topic: str) -> bool:
        """Whether a subscription of this kind includes the topic or partition; computed independently of client and
        broker."""
        base, _, index = topic.partition("-partition-")
        if of == ONE or (of == LIST and base != self.base):
            return topic == self.topic(LISTED)
        if of == PATTERN:
            beginning = (f"{self.base}-", f"{DELETED}{self.context.name}-")
            return base == self.base or base.startswith(beginning)
        return base == self.base and index.isdigit()

    # Clients and administrators.

    def client(self, region: str, *, asks_seconds: float) -> Client:
        settings = replace(
            CLIENT_SETTINGS,
            asks_for_partitions=True,
            partitions_interval_seconds=asks_seconds,
            topics_interval_seconds=asks_seconds * 10,
        )
        self._clients += 1
        instance = f"{self.context.name}-{self._clients}"
        return self.context.world.client_on(self.host, (region,), settings, instance=instance)

    async def call(
        self, method: str, region: str, topic: str, what: str, body: int | None = None
    ) -> HttpResponse | None:
        """Send an admin request. Return the response; None: there was none."""
        target = f"/admin/v2/persistent/{topic.partition('://')[2]}{what}"
        try:
            return await self.context.world.ask_admin(region, method, target, body, host=self.host)
        except NoHttpResponse:
            return None

    async def retry_until_done(
        self, method: str, region: str, topic: str, what: str, body: int | None, done: tuple[int, ...]
    ) -> bool:
        """Repeat the call until its status is in `done`. Return False at the deadline."""
        give_up_at = self.give_up_at
        while self.now < give_up_at:
            answer = await self.call(method, region, topic, what, body)
            if answer is not None and answer.status in done:
                return True
            await asyncio.sleep(AGAIN_SECONDS)
        return False

    # Time.

    @property
    def now(self) -> float:
        return self.context.now

    @property
    def give_up_at(self) -> float:
        return max(self.now, self.faults_end_seconds) + CONVERGENCE_SECONDS

    async def sleep_until(self, at_seconds: float) -> None:
        await asyncio.sleep(max(0.0, at_seconds - self.now))

    def loop_time(self, at_seconds: float) -> float:
        return asyncio.get_running_loop().time() + at_seconds - self.now
