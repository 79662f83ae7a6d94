"""Programs whose topic has a retention by age or size, or one that is changed while clients run: what it keeps can be
read although it is acknowledged, what it lets go goes, and nothing goes that a subscription still needs.

Each program has a topic of its own. What was taken from it and when, it knows itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.admin_calls import NoAnswer
from emulator.broker.topic.topic import Topic
from emulator.broker.topic.trimming import Trimmer
from emulator.client import EARLIEST, Client, ClientError, Consumer
from emulator.core.needs import Need
from emulator.core.policies.lifetime import BYTES_PER_MEGABYTE, MS_PER_MINUTE
from emulator.core.retention import Ages, Seen, Trimming
from emulator.simulation.ablation import Ablation, parts, topic
from emulator.simulation.checkers import Check, Found
from emulator.simulation.evidence import Evidence
from emulator.simulation.plan import Plan
from emulator.simulation.vocabulary.letting_go import MARGIN_SECONDS
from emulator.simulation.vocabulary.mortal import PATIENCE_SECONDS, STEP_SECONDS, SUBSCRIPTION, Mortal
from emulator.simulation.vocabulary.word import Stage, Word

NAME = "retain"
SLOW = "slow"
"""A subscription that nobody reads before everything else was judged."""
ARRIVAL_SECONDS = 20.0
"""For what is under way between regions when nothing goes wrong any more; less than a minute, which is an age."""
METADATA_BYTES_MAX = 300
"""Of these programs' entries."""
MINUTE_SECONDS = MS_PER_MINUTE / 1000
SHORT, LOST, STAYS = "short: ", "lost: ", "stays: "
Taken = dict[bytes, float]
"""By payload, of what a region took: when it was sent."""


@dataclass(frozen=True, slots=True)
class Retaining(Mortal):
    """It publishes, acknowledges everything, sets a retention, reads what must be there, and waits until the rest is
    gone; in the end the retention may be lowered to nothing."""

    set_at_seconds: float
    minutes: int
    megabytes: int
    payload_bytes: int
    has_slow: bool
    is_lowered: bool

    word: ClassVar[str] = NAME

    async def perform(self, stage: Stage) -> None:
        writer, reader = stage.client(), self.reader(stage)
        try:
            consumer = await self.subscribed(reader, stage, SUBSCRIPTION)
            if self.has_slow:
                stage.record.windows.begin(self.reading, self.topic(stage), SLOW)  # it is judged here
                await (await self.subscribed(reader, stage, SLOW)).close()
            taken: Taken = {}
            publishing = asyncio.ensure_future(self._publish(writer, stage, taken))
            acknowledging = asyncio.ensure_future(self._acknowledge(consumer, stage))
            await asyncio.sleep(max(0.0, self.set_at_seconds - stage.now))
            if await self._set(stage, self.minutes, self.megabytes):
                await publishing
                await self.calm(stage)
                await self._judge(reader, stage, taken)
            acknowledging.cancel()
        finally:
            await writer.close()
            await reader.close()

    async def _set(self, stage: Stage, minutes: int, megabytes: int) -> bool:
        body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
        return await self.insist(stage, "POST", "/retention", body, done=(204,))

    async def _publish(self, client: Client, stage: Stage, taken: Taken) -> None:
        producer = await client.producer(self.topic(stage), name=stage.name)
        for number in range(self.messages):
            payload, sent = f"{stage.name}/{number}/".encode().ljust(self.payload_bytes, b"."), stage.now
            try:
                await producer.send(payload, sequence_id=number)
            except ClientError:
                return
            taken[payload] = sent
            await asyncio.sleep(self.pause_seconds)

    async def _acknowledge(self, consumer: Consumer, stage: Stage) -> None:
        """Whatever comes, for ever."""
        while True:
            message = await self.given(consumer, stage)
            await consumer.acknowledge(message)

    async def _judge(self, reader: Client, stage: Stage, taken: Taken) -> None:
        missing = await self._missing(reader, stage, taken)
        if missing:
            self._tell(stage, SHORT, missing, taken)
            return
        if self.is_lowered and not await self._set(stage, 0, 0):
            return
        if self.has_slow:
            wanted = set(taken)
            slow = await self.subscribed(reader, stage, SLOW)
            missing = wanted - await self.everything(slow, stage, wanted)
            if missing:
                self._tell(stage, LOST, missing, taken)
                return
        stays = await self._stays(stage)
        if stays:
            stage.did("refused", topic=self.topic(stage), detail=f"{STAYS}{stays}")
        else:
            stage.did("accepted", topic=self.topic(stage))

    async def _missing(self, reader: Client, stage: Stage, taken: Taken) -> set[bytes]:
        """Of what retention keeps. What is under way to the region in which it reads may come a little later."""
        give_up_at = stage.now + ARRIVAL_SECONDS
        while True:
            came = await self._all_there_is(reader, stage)
            missing = self._kept(stage, taken) - came
            if not missing or stage.now > give_up_at:
                return missing

    async def _all_there_is(self, client: Client, stage: Stage) -> set[bytes]:
        reader, came = await client.reader(self.topic(stage), EARLIEST), set[bytes]()
        try:
            while True:
                async with asyncio.timeout(STEP_SECONDS):
                    came.add((await reader.receive()).payload)
        except TimeoutError:
            await reader.close()
            return came

    def _kept(self, stage: Stage, taken: Taken) -> set[bytes]:
        """What must be there now."""
        kept, room = set[bytes](), self.megabytes * BYTES_PER_MEGABYTE
        copies = 1 if stage.world.homes.deduplicates(self.topic(stage)) else 2
        for payload, sent in reversed(taken.items()):
            room -= copies * (len(payload) + METADATA_BYTES_MAX)
            is_young = sent + self.minutes * MINUTE_SECONDS > stage.now + MARGIN_SECONDS
            if (self.minutes < 0 or is_young) and (self.megabytes < 0 or room >= 0):
                kept.add(payload)
        return kept

    async def _stays(self, stage: Stage) -> str:
        """What is there that must not, for long enough; empty: nothing."""
        limit = BYTES_PER_MEGABYTE * self.megabytes if self.megabytes > 0 and self.minutes < 0 else 0
        limit = 0 if self.is_lowered else limit
        give_up_at = stage.now + max(0, self.minutes) * MINUTE_SECONDS + PATIENCE_SECONDS
        while True:
            try:
                stats = await self.stats(stage, self.reading)
                size = 0 if stats is None else int(stats["storageSize"])
            except NoAnswer:
                size = -1
            if 0 <= size <= limit:
                return ""
            if stage.now > give_up_at:
                return f"{size} bytes"
            await asyncio.sleep(1.0)

    def _tell(self, stage: Stage, what: str, missing: set[bytes], taken: Taken) -> None:
        first = min(missing).rstrip(b".").decode()
        told = f"{what}{first} and {len(missing) - 1} more of {len(taken)}"
        stage.did("refused", topic=self.topic(stage), detail=told)


def draw(random: Random, plan: Plan) -> Plan:
    """Programs everywhere, some with large messages."""
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(1, 3)))))


def _program(random: Random, plan: Plan) -> Retaining:
    seconds, count = plan.break_seconds, random.randint(5, 30)
    minutes, megabytes = random.choice(((1, -1), (-1, 1), (1, 1), (0, 0), (-1, -1)))
    is_large = megabytes == 1 and random.random() < 0.7
    begin = round(random.uniform(0.2, seconds * 0.4), 3)
    return Retaining(
        *(begin, random.choice(plan.regions), random.choice(plan.regions), count),
        round(seconds / count * random.uniform(0.1, 0.6), 4),
        seconds + 1.0,
        round(random.uniform(begin, seconds), 3),
        *(minutes, megabytes),
        random.choice((60_000, 120_000)) if is_large else 100,
        random.random() < 0.3,
        random.random() < 0.4 or minutes == megabytes == -1,
    )


# INV-104


def _told(begin: str, sentence: str) -> Callable[[Evidence], Found]:
    def check(evidence: Evidence) -> Found:
        for deed in evidence.deeds:
            if deed.word == NAME and deed.detail.startswith(begin):
                told = f"{deed.topic}: {sentence}: {deed.detail.removeprefix(begin)}"
                yield told, {"region": deed.region, "topic": deed.topic}

    return check


def _acted(evidence: Evidence) -> bool:
    return any(deed.word == NAME for deed in evidence.deeds)


class _NothingIsYoung(Ages):
    """Whatever is looked at is old enough to go."""

    def is_older(self, entry: Seen, age_ms: int, now_ms: int) -> bool:
        return True


class _NothingIsOld(Ages):
    """Nothing is ever old enough to go."""

    def is_older(self, entry: Seen, age_ms: int, now_ms: int) -> bool:
        return False


class _NeverTooMuch(Trimming):
    """However large a log is, its size lets nothing go."""

    def goes(self, entry: Seen) -> bool:
        self._left_bytes = 0
        return super().goes(entry)


class _AlwaysTooMuch(Trimming):
    """However small a log is, it is taken to be too large."""

    def goes(self, entry: Seen) -> bool:
        self._left_bytes = 2**40
        return super().goes(entry)


class _AsksWhoIsThere(Trimmer):
    """Subscriptions that nobody reads hold nothing back."""

    def _cursors(self) -> Iterable[Need]:
        for name, subscription in self._topic.subscriptions.items():
            if subscription.durable and subscription.consumers:
                yield Need(subscription.cursor.mark_delete + 1, f"subscription {name}")

    def _pass_trimmed(self) -> None:
        """Nor are they told."""


class _SparesWhoIsThere(Topic):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.trimmer = _AsksWhoIsThere(self)


WORD = Word(
    NAME,
    draw,
    checks=(
        Check(
            "retained-can-be-read",
            "INV-104",
            _told(SHORT, "retention keeps it, and no reader is given it"),
            applies=_acted,
        ),
        Check(
            "retention-spares-the-slow",
            "INV-36",
            _told(LOST, "needed by a slow subscription, and never given to it"),
            applies=_acted,
        ),
        Check(
            "retained-no-longer",
            "INV-104",
            _told(STAYS, "acknowledged, let go by retention, and still there"),
            applies=_acted,
        ),
    ),
    ablations=(
        Ablation(
            "retention-ignores-age",
            "What is acknowledged goes however young it is.",
            ("INV-104",),
            parts(ages=_NothingIsYoung),
            kind=NAME,
        ),
        Ablation(
            "retention-never-ends",
            "What is acknowledged stays however old it is.",
            ("INV-104",),
            parts(ages=_NothingIsOld),
            kind=NAME,
        ),
        Ablation(
            "size-always-exceeded",
            "A log is taken to be larger than its retention allows.",
            ("INV-104",),
            parts(trimming=_AlwaysTooMuch),
            kind=NAME,
        ),
        Ablation(
            "size-never-exceeded",
            "A log grows beyond its retention by size.",
            ("INV-104",),
            parts(trimming=_NeverTooMuch),
            kind=NAME,
        ),
        Ablation(
            "slow-not-asked",
            "A log is trimmed without asking what subscriptions need that nobody reads.",
            ("INV-36",),
            topic(_SparesWhoIsThere),
            kind=NAME,
        ),
    ),
)
