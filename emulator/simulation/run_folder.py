"""Write the outcome of a simulated run as an ordinary run folder, for `geoemu verify` and the report.

Logs are written in the format of `storage.sqlite` (docs/ARCHITECTURE.md, "What is on disk") directly, not through its
store, because the store would assign other ids than the simulated medium did.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from emulator.config.topology import CONFIGURATION_FILE, RegionPorts, region_config
from emulator.run.history import run_name
from emulator.run.history_events import HistoryEvent, framed
from emulator.simulation.outcome import SimulationOutcome, StoredLog
from emulator.simulation.world import SERVICE_PORT
from emulator.storage.configuration.sqlite import FORMAT_VERSION as CONFIGURATION_VERSION
from emulator.storage.configuration.sqlite import TABLES as CONFIGURATION_TABLES
from emulator.storage.group import encode_group
from emulator.storage.sqlite.file import FORMAT_VERSION, TABLES


def write_evidence(outcome: SimulationOutcome, folder: Path) -> None:
    """Write `regions/*`, `configuration/*` and `history/*` into a folder that may exist. The caller writes `run.json`
    and `topology.json`."""
    topology, stored = outcome.topology, outcome.stored
    ports = dict.fromkeys(topology.region_names, RegionPorts(SERVICE_PORT, 0))
    for name in topology.region_names:
        region_dir = folder / "regions" / name
        region_dir.mkdir(parents=True, exist_ok=True)
        config = region_config(topology, name, ports, region_dir=region_dir)
        (region_dir / "region.json").write_text(config.to_json())
        _write_logs(region_dir / "log.sqlite", name, stored.logs[name], stored.values[name])
        (region_dir / "metadata.jsonl").write_text(
            "".join(f"{line}\n" for line in stored.config_changes[name])
        )
    for cluster, values in stored.configurations.items():
        _write_configuration(folder / "configuration" / cluster / CONFIGURATION_FILE, cluster, values)
    _write_history(outcome, folder / "history")


def _write_logs(path: Path, region: str, logs: list[StoredLog], values: list[tuple[str, bytes]]) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(TABLES)
        database.executemany(
            "INSERT INTO meta VALUES (?, ?)", [("format_version", FORMAT_VERSION), ("region", region)]
        )
        database.executemany("INSERT INTO key_values VALUES (?, ?, 1)", values)
        for log in logs:
            first = log.entries[0][0] if log.entries else log.next_entry_id
            database.execute(
                "INSERT INTO logs VALUES (?, ?, ?, ?)", (log.ledger_id, log.name, first, log.next_entry_id)
            )
            database.executemany(
                "INSERT INTO entry_groups VALUES (?, ?, 1, ?)",
                [(log.ledger_id, entry_id, encode_group([data])) for entry_id, data in log.entries],
            )


def _write_configuration(path: Path, cluster: str, values: Mapping[str, bytes]) -> None:
    """Write a configuration store. Versions and revisions are 0, because no region opens the store again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(CONFIGURATION_TABLES)
        database.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            [("format_version", CONFIGURATION_VERSION), ("cluster", cluster)],
        )
        database.executemany("INSERT INTO kv VALUES (?, ?, 0, 0)", sorted(values.items()))


def _write_history(outcome: SimulationOutcome, folder: Path) -> None:
    """Write one history file per actor, without the events of readers, which the report does not use."""
    folder.mkdir(parents=True, exist_ok=True)
    by_actor: dict[str, list[HistoryEvent]] = defaultdict(list)
    for event in outcome.events:
        if event.op != "read":
            # `detail` contains the payload, which the report does not use.
            written = event if event.outcome == "fact" else dataclasses.replace(event, detail=None)
            if (event.message_id or "").startswith("-1:"):  # a dropped duplicate has no message id
                written = dataclasses.replace(written, message_id=None)
            by_actor[event.actor].append(written)
    run = run_name(folder.parent)
    for actor, events in by_actor.items():
        (folder / f"{actor}.jsonl").write_text(framed(events, actor, run))
