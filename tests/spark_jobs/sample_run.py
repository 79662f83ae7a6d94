"""Run directories with known content, written with the broker's store, the history writer and a topology.

A `SampleRun` is built in memory first: its region stores a publish and replicates it to the others, and the history
records each operation. Tests may change logs and history before `write` creates the run directory.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from emulator.config.link_shape import LinkShape
from emulator.config.region import LogConfig, NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionPorts, RegionSpec, Topology, region_config
from emulator.model.markers import Marker
from emulator.model.values import Position
from emulator.run.history import HistoryWriter
from emulator.run.history_events import payload_digest, transaction_text
from emulator.storage.contract import ledger_id_base
from emulator.storage.sqlite.store import open_sqlite
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, with_replication, with_transaction
from emulator.wire.markers import encode_marker, encode_transaction_end

TOPIC = "persistent://public/default/orders"
START_MS = 1_763_712_000_000.0


def place(region: str, entry: int) -> Position:
    """Return the position of an entry of a region's first topic."""
    return Position(ledger_id_base(region) + 1, entry)


@dataclass
class SampleRun:
    """A run of several regions with one topic."""

    clusters: dict[str, Sequence[str]] = field(
        default_factory=lambda: {"americas": ("us-east", "us-west"), "europe": ("eu-central",)}
    )
    deduplication: bool = True
    logs: dict[str, list[bytes]] = field(default_factory=dict)
    """The entries of each region, in order."""
    events: list[tuple[str, float, str, str, dict[str, object]]] = field(default_factory=list)
    """(actor, at_ms, op, outcome, fields)"""

    def __post_init__(self) -> None:
        self.logs = {region: [] for region in self.regions}

    @property
    def regions(self) -> list[str]:
        return [region for regions in self.clusters.values() for region in regions]

    def tell(self, actor: str, at_s: float, op: str, outcome: str, **fields: object) -> None:
        self.events.append((actor, START_MS + at_s * 1000, op, outcome, fields))

    def time_ms(self, at_s: float) -> float:
        return START_MS + at_s * 1000

    def change(self, op: str, outcome: str, *, only: int, **fields: object) -> None:
        """Change fields of one event. `only`: its index among the events with this operation and outcome."""
        found = [event for event in self.events if (event[2], event[3]) == (op, outcome)]
        found[only][4].update(fields)

    def fact(self, at_s: float, op: str, **fields: object) -> None:
        self.tell("scenario", at_s, op, "fact", **fields)

    def ask(
        self,
        region: str,
        number: int,
        at_s: float,
        producer: str | None = None,
        transaction: tuple[int, int] | None = None,
    ) -> dict[str, object]:
        """Add a publish request without an outcome."""
        producer = producer or f"orders-{region}"
        place = {"region": region, "topic": TOPIC, "producer": producer, "session": f"session of {producer}"}
        if producer not in {actor for actor, *_ in self.events}:
            self.tell(producer, at_s, "connect", "ok", **place, last_sequence_id=-1)
        message = {**place, "sequence_id": number}
        digest = payload_digest(payload_of(region, number))
        said = {"payload_digest": digest, "transaction": transaction_text(transaction)}
        self.tell(producer, at_s, "publish", "asked", **message, **said)
        return message

    def publish(
        self,
        region: str,
        number: int,
        at_s: float,
        to: Sequence[str] | None = None,
        acknowledged: bool = True,
        producer: str | None = None,
        transaction: tuple[int, int] | None = None,
    ) -> None:
        """Add a publish that is stored, replicated (to all regions by default) and acknowledged 2 ms later."""
        message = self.ask(region, number, at_s, producer, transaction)
        metadata = pb.MessageMetadata(
            producer_name=str(message["producer"]),
            sequence_id=number,
            publish_time=int(self.time_ms(at_s)),
        )
        entry = build_entry(metadata, payload_of(region, number))
        position = self.store(region, entry if transaction is None else with_transaction(entry, transaction))
        for other in self.regions if to is None else to:
            if other != region:
                self.logs[other].append(with_replication(self.logs[region][position.entry], region, position))
        if acknowledged:
            self.tell(
                str(message["producer"]),
                at_s + 0.002,
                "publish",
                "ok",
                message_id=f"{position}:-1",
                **message,
            )

    def end(self, region: str, transaction: tuple[int, int], at_s: float, *, commit: bool) -> None:
        """Commit or abort a transaction: write the marker, and the client's request and response."""
        self.store(region, encode_transaction_end(transaction, int(self.time_ms(at_s)), committed=commit)[0])
        action = "commit" if commit else "abort"
        for outcome in ("asked", "ok"):
            said = {"transaction": transaction_text(transaction), "action": action}
            self.tell(f"orders-{region}", at_s, "end_transaction", outcome, region=region, **said)

    def store(self, region: str, entry: bytes) -> Position:
        self.logs[region].append(entry)
        return place(region, len(self.logs[region]) - 1)

    def mark(self, region: str, marker: Marker, at_s: float, to: Sequence[str] = ()) -> Position:
        """Store a marker of a region, and its copies in other regions."""
        position = self.store(region, encode_marker(marker, int(self.time_ms(at_s)))[0])
        for other in to:
            self.logs[other].append(with_replication(self.logs[region][position.entry], region, position))
        return position

    def subscribe(
        self, region: str, at_s: float, subscription: str = "billing", *, replicated: bool = True
    ) -> None:
        for outcome in ("asked", "ok"):
            self.tell(
                subscription,
                at_s,
                "subscribe",
                outcome,
                region=region,
                topic=TOPIC,
                subscription=subscription,
                replicated=replicated,
                initial="earliest",
            )

    def acknowledge(self, region: str, entry: int, at_s: float, subscription: str = "billing") -> None:
        self.tell(
            subscription,
            at_s,
            "acknowledge",
            "asked",
            region=region,
            topic=TOPIC,
            subscription=subscription,
            message_id=f"{place(region, entry)}:-1",
            how="individual",
        )

    def receive(
        self,
        region: str,
        origin: str,
        number: int,
        at_s: float,
        entry: int = 0,
        subscription: str = "billing",
    ) -> None:
        self.tell(
            subscription,
            at_s,
            "receive",
            "ok",
            region=region,
            topic=TOPIC,
            subscription=subscription,
            origin_region=origin,
            producer=f"orders-{origin}",
            sequence_id=number,
            message_id=f"{place(region, entry)}:-1",
        )

    @property
    def topology(self) -> Topology:
        return Topology(
            name="sample",
            path=Path("/topology.yaml"),
            clusters=tuple(
                ClusterSpec(name, tuple(RegionSpec(region, name, log=LogConfig()) for region in regions))
                for name, regions in self.clusters.items()
            ),
            links=tuple(
                LinkSpec(a, b, LinkShape(20.0)) for a in self.regions for b in self.regions if a != b
            ),
            namespaces=(NamespaceConfig("public/default", tuple(self.regions), self.deduplication),),
        )

    def write(self, run: Path) -> Path:
        """Write the run directory as a runtime and a scenario would have left it."""
        run.mkdir(parents=True, exist_ok=True)
        (run / "run.json").write_text("{}\n")
        (run / "topology.json").write_text(self.topology.to_json())
        ports = dict.fromkeys(self.regions, RegionPorts(0, 0))
        for region, entries in self.logs.items():
            folder = run / "regions" / region
            folder.mkdir(parents=True)
            config = region_config(self.topology, region, ports, region_dir=folder)
            (folder / "region.json").write_text(config.to_json())
            asyncio.run(store_entries(folder / "log.sqlite", region, entries))
        clock = [0.0]
        writers: dict[str, HistoryWriter] = {}
        for actor in sorted({"scenario", *(actor for actor, *_ in self.events)} - {"scenario"}):
            self.fact(0.0, "hire", file=actor)
        for actor, at_ms, op, outcome, fields in sorted(self.events, key=lambda event: event[1]):
            clock[0] = at_ms
            if actor not in writers:
                path = run / "history" / f"{actor}.jsonl"
                others = [] if actor == "scenario" else ["scenario"]
                writers[actor] = HistoryWriter(path, actor, lambda: clock[0], others=others)
            writers[actor].write(op, outcome, **fields)  # type: ignore[arg-type]
        for writer in writers.values():
            writer.close()
        return run


def payload_of(region: str, number: int) -> bytes:
    return f"order {number} of {region}".encode().ljust(80)


async def store_entries(
    path: Path, region: str, entries: Sequence[bytes], group: int = 50, topic: str = TOPIC
) -> None:
    """Append the entries with the broker's SQLite store, in groups."""
    store = await open_sqlite(path, region)
    log = await store.open_log(topic)
    assert log is not None
    for start in range(0, len(entries), group):
        await log.append(entries[start : start + group])
    await store.close()


def put_value(run: Path, region: str, key: str, value: bytes) -> None:
    """Store a value in the key-value table of a region's log."""
    with closing(sqlite3.connect(run / "regions" / region / "log.sqlite")) as database, database:
        database.execute("INSERT OR REPLACE INTO key_values VALUES (?, ?, 1)", (key, value))


def failover_drill(seconds: float = 14.0, per_second: int = 200) -> SampleRun:
    """us-east is killed while billing consumes there; billing continues in us-west and receives a few messages
    again."""
    run = SampleRun()
    kill, move, back = 0.4 * seconds, 0.4 * seconds + 0.84, 0.65 * seconds
    run.fact(0.0, "phase", detail="all regions work")
    run.subscribe("us-east", 0.05)
    run.fact(kill, "kill", region="us-east")
    run.subscribe("us-west", move - 0.1)
    run.fact(back, "start", region="us-east")
    run.fact(seconds - 1, "phase", detail="everything arrives")
    late: list[tuple[int, float]] = []
    entries: list[tuple[str, int, float]] = []
    east = west = 0
    for step in range(int((seconds - 1.5) * per_second)):
        at_s = 0.2 + step / per_second
        run.publish("eu-central", step, at_s)
        entries.append(("eu-central", step, at_s))
        if at_s < kill - 0.02 or at_s > back + 0.4:
            run.publish("us-east", east, at_s)
            entries.append(("us-east", east, at_s))
            east += 1
        elif at_s < kill:
            late.append((east, at_s))
            run.publish("us-east", east, at_s, acknowledged=False)
            entries.append(("us-east", east, at_s))
            east += 1
    # All logs have the same order in this run, so an entry has the same id in each of them.
    for entry, (origin, number, at_s) in enumerate(entries):
        if at_s < kill - 0.05:
            run.receive("us-east", origin, number, at_s + 0.03, entry)
        if at_s > kill - 0.55:
            run.receive("us-west", origin, number, max(at_s + 0.04, move + west * 0.0004), entry)
            west += 1
    return run
