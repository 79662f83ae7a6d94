"""Programs whose topics have an end: messages expire or are evicted by a policy that comes and goes, or somebody
deletes the topic while its clients are attached. Nothing goes before its time, what is to go goes, and a topic that was
deleted begins anew with everything that is published to it then.

Each program has a topic of its own. What it published, and when, it knows itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.admin_calls import NoAnswer
from emulator.client import Client, ClientError, Consumer, InitialPosition, Message, Producer
from emulator.core.retention import EVICT_TO, Ages, Seen
from emulator.history import payload_digest
from emulator.simulation.ablation import Ablation, parts
from emulator.simulation.actors import place_of, text_of
from emulator.simulation.checkers import Check, Found
from emulator.simulation.disk import DiskStore, SimulatedDisk
from emulator.simulation.evidence import DELETED, Evidence, full
from emulator.simulation.plan import Plan
from emulator.simulation.vocabulary.word import Act, Stage, Word
from emulator.stored_keys import CursorKey

NAME = "expire"
SUBSCRIPTION = "sleeper"
STEP_SECONDS = 3.0
"""For what may be impossible while things go wrong: then it is tried again, or the program knows less."""
PATIENCE_SECONDS = 60.0
"""For what has to come about, once nothing goes wrong any more."""
MARGIN_SECONDS = 0.1
"""Clocks tell whole milliseconds, and a message is stamped a moment before it is sent."""
DONE = (204, 404)
"""It is so now, or there is nothing any more."""
STORED_SECONDS = 1.0
"""What was passed when the policy ended is stored a little later."""
EVICT, SIZE = "consumer_backlog_eviction", "destination_storage"
ENTRY_BYTES_MAX = 300
"""Of these programs' entries."""
Stored = dict[bytes, tuple[float, float]]
"""By payload, of what a region took: when it was sent, and when it was taken."""
EARLY = "early: "
STAYS = "stays: "
BACK = "back: "
LOST = "lost: "


@dataclass(frozen=True, slots=True)
class Mortal(Act):
    """What both acts have in common: a program, its topic, and a region in which it reads."""

    reading: str
    messages: int
    pause_seconds: float
    """Between two messages."""
    breaks_end_seconds: float
    """From then on nothing goes wrong."""

    word: ClassVar[str] = NAME
    is_waited_for: ClassVar[bool] = True

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region, self.reading)

    def topic(self, stage: Stage) -> str:
        """Its full name."""
        return full(stage.name)

    def reader(self, stage: Stage) -> Client:
        """On the program's own host, wherever the region is."""
        host = stage.world.client_host(stage.name, self.region)
        return stage.world.client_on(host, (self.reading,), instance="reader")

    async def subscribed(self, client: Client, stage: Stage) -> Consumer:
        earliest = InitialPosition.EARLIEST
        return await client.subscribe(self.topic(stage), SUBSCRIPTION, initial_position=earliest)

    async def ask(self, stage: Stage, method: str, what: str, body: Any = None) -> int | None:
        """The status that the region in which it reads answers with; None: it does not."""
        host = stage.world.client_host(stage.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(stage).partition('://')[2]}{what}"
        try:
            return (await stage.world.ask_admin(self.reading, method, target, body, host=host)).status
        except NoAnswer:
            return None

    async def insist(
        self, stage: Stage, method: str, what: str, body: Any = None, done: tuple[int, ...] = DONE
    ) -> bool:
        """Ask until the region says that it is so; False when it never did."""
        give_up_at = max(stage.now, self.breaks_end_seconds) + PATIENCE_SECONDS
        while stage.now < give_up_at:
            if await self.ask(stage, method, what, body) in done:
                return True
            await asyncio.sleep(0.2)
        return False

    async def given(self, consumer: Consumer, stage: Stage) -> Message:
        message = await consumer.receive()
        stage.record.note(
            stage.name,
            "receive",
            "ok",
            region=self.reading,
            topic=self.topic(stage),
            subscription=consumer.subscription,
            origin_region=message.replicated_from or self.reading,
            producer=message.producer_name,
            sequence_id=message.sequence_id,
            message_id=place_of(message),
            payload_digest=payload_digest(message.payload),
            detail=text_of(message),
        )
        return message

    async def everything(self, consumer: Consumer, stage: Stage, wanted: set[bytes]) -> set[bytes]:
        """All that comes, until nothing of what is wanted is missing any more, or for long enough."""
        came: set[bytes] = set()
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS if wanted <= came else PATIENCE_SECONDS):
                    message = await self.given(consumer, stage)
                    came.add(message.payload)
                    await consumer.acknowledge(message)
            except TimeoutError:
                return came

    async def calm(self, stage: Stage) -> None:
        await asyncio.sleep(max(0.0, self.breaks_end_seconds - stage.now))


@dataclass(frozen=True, slots=True)
class LettingGo(Mortal):
    """Nobody reads for a while, and a policy that lets messages go is set and, mostly, taken back."""

    set_at_seconds: float
    taken_back_after_seconds: float | None
    """None: it stays."""
    limit: int
    """Of the policy."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        """(where it is set or deleted, what is said)."""
        raise NotImplementedError

    def kept(self, stored: Stored, until: float) -> set[bytes]:
        """What the policy, in force until then, never let go of."""
        raise NotImplementedError

    def is_due(self, stored: Stored, now: float) -> bool:
        """Whether what the policy lets go has to be gone, if it is in force for long enough."""
        raise NotImplementedError

    async def left(self, stage: Stage) -> str:
        """What is there that must not; empty: nothing."""
        raise NotImplementedError

    async def perform(self, stage: Stage) -> None:
        writer, reader = stage.client(), self.reader(stage)
        try:
            await (await self.subscribed(reader, stage)).close()
            stored: Stored = {}
            publishing = asyncio.ensure_future(self._publish(writer, stage, stored))
            window = stage.record.windows.begin(self.reading, self.topic(stage), SUBSCRIPTION)
            until = await self._set_and_take_back(stage)
            await publishing
            await self.calm(stage)
            if until is not None:
                await asyncio.sleep(STORED_SECONDS)
                stage.record.windows.end(window)
                await self._all_kept(reader, stage, stored, until)
            else:
                await self._all_gone(stage, stored)
        finally:
            await writer.close()
            await reader.close()

    async def _publish(self, client: Client, stage: Stage, stored: Stored) -> None:
        producer = await client.producer(self.topic(stage), name=stage.name)
        for number in range(self.messages):
            payload, sent = f"{stage.name}/{number}".encode(), stage.now
            try:
                await producer.send(payload, sequence_id=number)
            except ClientError:
                return
            stored[payload] = (sent, stage.now)
            await asyncio.sleep(self.pause_seconds)

    async def _set_and_take_back(self, stage: Stage) -> float | None:
        """When the policy certainly counted no more; None: it may still."""
        await asyncio.sleep(max(0.0, self.set_at_seconds - stage.now))
        if not await self.insist(stage, "POST", *self.policy(is_set=True), done=(204,)):
            return None
        if self.taken_back_after_seconds is None:
            return None
        await asyncio.sleep(self.taken_back_after_seconds)
        return stage.now if await self.insist(stage, "DELETE", *self.policy(is_set=False)) else None

    async def _all_kept(self, reader: Client, stage: Stage, stored: Stored, until: float) -> None:
        kept = self.kept(stored, until)
        missing = kept - await self.everything(await self.subscribed(reader, stage), stage, kept)
        if missing:
            told = f"{EARLY}{min(missing).decode()} and {len(missing) - 1} more of {len(kept)}"
            stage.did("refused", topic=self.topic(stage), detail=told)
        else:
            stage.did("accepted", topic=self.topic(stage), detail=f"{len(kept)} of {len(stored)} had to come")

    async def _all_gone(self, stage: Stage, stored: Stored) -> None:
        """The policy stays: sooner or later what it lets go is gone, without being asked."""
        give_up_at = None
        while left := await self.left(stage):
            if give_up_at is None and self.is_due(stored, stage.now):
                give_up_at = stage.now + PATIENCE_SECONDS
            if give_up_at is not None and stage.now > give_up_at:
                stage.did("refused", topic=self.topic(stage), detail=f"{STAYS}{left}")
                return
            await asyncio.sleep(0.5)
        stage.did("accepted", topic=self.topic(stage))

    async def stats(self, stage: Stage) -> dict[str, Any]:
        """Empty: nobody says."""
        host = stage.world.client_host(stage.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(stage).partition('://')[2]}/stats"
        try:
            answer = await stage.world.ask_admin(self.reading, "GET", target, host=host)
        except NoAnswer:
            return {}
        return dict(answer.json()) if answer.status == 200 else {}


@dataclass(frozen=True, slots=True)
class Expiry(LettingGo):
    """By a time to live: so many seconds."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        return f"/messageTTL?messageTTL={self.limit}" if is_set else "/messageTTL", None

    def kept(self, stored: Stored, until: float) -> set[bytes]:
        """What had not lived so long when the policy ended was never old enough."""
        return {one for one, (sent, _) in stored.items() if sent + self.limit > until + MARGIN_SECONDS}

    def is_due(self, stored: Stored, now: float) -> bool:
        newest = max((taken for _, taken in stored.values()), default=now)
        return now > newest + self.limit

    async def left(self, stage: Stage) -> str:
        found = (await self.stats(stage)).get("subscriptions", {}).get(SUBSCRIPTION)
        if found is None:
            return "nobody says how much"
        return f"{found['msgBacklog']} entries" if found["msgBacklog"] else ""


@dataclass(frozen=True, slots=True)
class Eviction(LettingGo):
    """By a quota of so many bytes, over which the oldest messages are passed."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        quota = {"limitSize": self.limit, "limit": self.limit, "limitTime": -1, "policy": EVICT}
        return f"/backlogQuota?backlogQuotaType={SIZE}", quota if is_set else None

    def kept(self, stored: Stored, until: float) -> set[bytes]:
        """The newest, so many that they were never too much together."""
        count = max(0, int(self.limit * EVICT_TO) // ENTRY_BYTES_MAX - 1)
        return set(list(stored)[-count:]) if count else set()

    def is_due(self, stored: Stored, now: float) -> bool:
        return True

    async def left(self, stage: Stage) -> str:
        stats = await self.stats(stage)
        if "backlogSize" not in stats:
            return "nobody says how much"
        return f"{stats['backlogSize']} bytes" if stats["backlogSize"] > self.limit else ""


@dataclass(frozen=True, slots=True)
class Deletion(Mortal):
    """It publishes, reads a part, deletes the topic with both clients attached, and goes on with them."""

    def topic(self, stage: Stage) -> str:
        return f"{DELETED}{stage.name}"

    async def perform(self, stage: Stage) -> None:
        reader = self.reader(stage)
        try:
            consumer = await self.subscribed(reader, stage)
            producer = await reader.producer(self.topic(stage), name=stage.name)
            first = await self._publish(producer, stage, "first")
            await self._read_some(consumer, stage)
            if not await self.insist(stage, "DELETE", "?force=true"):
                return
            await self.calm(stage)
            second = await self._publish(producer, stage, "second")
            came = await self.everything(consumer, stage, second)
            late = await reader.subscribe(
                self.topic(stage), "late", initial_position=InitialPosition.EARLIEST
            )
            back = first & await self.everything(late, stage, second)
            self._tell(stage, second - came, back)
        finally:
            await reader.close()

    async def _publish(self, producer: Producer, stage: Stage, life: str) -> set[bytes]:
        """What the region took."""
        stored: set[bytes] = set()
        for number in range(self.messages):
            payload = f"{stage.name}/{life}/{number}".encode()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await producer.send(payload)
            except (ClientError, TimeoutError):
                continue
            stored.add(payload)
            await asyncio.sleep(self.pause_seconds)
        return stored

    async def _read_some(self, consumer: Consumer, stage: Stage) -> None:
        """So that the subscription stands somewhere when the topic goes."""
        for _ in range(self.messages // 2):
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await consumer.acknowledge(await self.given(consumer, stage), confirmed=True)
            except (TimeoutError, ClientError):
                return

    def _tell(self, stage: Stage, lost: set[bytes], back: set[bytes]) -> None:
        for what, payloads in ((LOST, lost), (BACK, back)):
            if payloads:
                told = f"{what}{min(payloads).decode()} and {len(payloads) - 1} more"
                stage.did("refused", topic=self.topic(stage), detail=told)
                return
        stage.did("accepted", topic=self.topic(stage))


def draw(random: Random, plan: Plan) -> Plan:
    """Programs of both kinds; most of the first read elsewhere."""
    seconds = plan.break_seconds

    def mortal(make: Callable[..., Mortal], *more: object) -> Mortal:
        count, region = random.randint(4, 30), random.choice(plan.regions)
        reading = region if make is Deletion else random.choice(plan.regions)
        pause = round(seconds / count * random.uniform(0.1, 0.8), 4)
        begin = round(random.uniform(0.2, seconds * 0.4), 3)
        return make(begin, region, reading, count, pause, seconds + 1.0, *more)

    def letting_go() -> Mortal:
        lasts = round(random.uniform(0.0, seconds * 0.5), 3) if random.random() < 0.7 else None
        begin = round(random.uniform(0.5, seconds), 3)
        if random.random() < 0.6:
            return mortal(Expiry, begin, lasts, random.randint(1, 4))
        return mortal(Eviction, begin, lasts, random.randint(600, 6_000))

    acts = [letting_go() if random.random() < 0.7 else mortal(Deletion) for _ in range(random.randint(2, 5))]
    return replace(plan, acts=(*plan.acts, *acts))


# INV-87 to INV-89


def _told(begin: str, sentence: str) -> Callable[[Evidence], Found]:
    def check(evidence: Evidence) -> Found:
        for deed in evidence.deeds:
            if deed.word == NAME and deed.detail.startswith(begin):
                yield (
                    f"{deed.topic}: {sentence}: {deed.detail.removeprefix(begin)}",
                    {"region": deed.region, "topic": deed.topic},
                )

    return check


def _acted(evidence: Evidence) -> bool:
    return any(deed.word == NAME for deed in evidence.deeds)


class _NothingIsYoung(Ages):
    """Whatever is looked at has expired."""

    def is_older(self, entry: Seen, age_ms: int, now_ms: int) -> bool:
        return True


class _NothingIsOld(Ages):
    """Nothing ever expires."""

    def is_older(self, entry: Seen, age_ms: int, now_ms: int) -> bool:
        return False


def _everything_is_too_much(*_: int) -> int:
    return 2**40


def _nothing_is_too_much(*_: int) -> int:
    return 0


class _KeepsCursorsStore(DiskStore):
    """What subscriptions of a deleted topic acknowledged stays in the store."""

    def delete(self, key: str) -> asyncio.Future[None]:
        if not key.startswith(CursorKey.prefix()):
            return super().delete(key)
        kept: asyncio.Future[None] = self.loop.create_future()
        kept.set_result(None)
        return kept


class _KeepsCursors(SimulatedDisk):
    def make_store(self, owner: int) -> DiskStore:
        return _KeepsCursorsStore(self, owner)


WORD = Word(
    NAME,
    draw,
    checks=(
        Check(
            "nothing-expires-early",
            "INV-87",
            _told(EARLY, "passed by its subscription though the policy kept it"),
            applies=_acted,
        ),
        Check(
            "expired-goes",
            "INV-88",
            _told(STAYS, "the policy lets it go, and it is still there"),
            applies=_acted,
        ),
        Check(
            "deleted-stays-away",
            "INV-89",
            _told(BACK, "came back after its topic was deleted"),
            applies=_acted,
        ),
        Check(
            "new-life-whole",
            "INV-89",
            _told(LOST, "published after the topic was deleted, and never given"),
            applies=_acted,
        ),
    ),
    ablations=(
        Ablation(
            "age-not-asked",
            "A message expires however young it is.",
            ("INV-87",),
            parts(ages=_NothingIsYoung),
            kind=NAME,
        ),
        Ablation(
            "nothing-expires",
            "Messages stay however old they are.",
            ("INV-88",),
            parts(ages=_NothingIsOld),
            kind=NAME,
        ),
        Ablation(
            "quota-always-exceeded",
            "Every backlog is taken for one that is over its quota.",
            ("INV-87",),
            parts(backlog_bytes=_everything_is_too_much),
            kind=NAME,
        ),
        Ablation(
            "quota-never-exceeded",
            "No backlog is taken for one that is over its quota.",
            ("INV-88",),
            parts(backlog_bytes=_nothing_is_too_much),
            kind=NAME,
        ),
        Ablation(
            "cursors-outlive-topics",
            "Deleting a topic leaves what its subscriptions acknowledged.",
            ("INV-89",),
            lambda seams: replace(seams, disk=_KeepsCursors),
            kind=NAME,
        ),
    ),
)
