"""Two running regions, and their stored logs."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emulator.config.loading import load_topology
from emulator.runtimes.process import ProcessRuntime
from spark_jobs.sources.entry_columns import EntryColumns
from spark_jobs.sources.history_files import HistoryFile, digest_number, inspect_file
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.sources.sqlite import plan, read_groups
from tests.runtimes.fixtures import end_all, write_topology

TOPIC = "persistent://public/default/orders"


class LiveRun:
    """A run, its folder and its addresses."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self.runtime = runtime
        self.run_dir = runtime.run_dir

    def do(self, verb: str, *names: str) -> Any:
        return asyncio.run(getattr(self.runtime, verb)(*names))

    def url(self, region: str) -> str:
        status = asyncio.run(self.runtime.status())
        return next(one.service_url for one in status.regions if one.name == region)

    def make_partitioned(self, region: str, topic: str, partitions: int) -> None:
        status = asyncio.run(self.runtime.status())
        admin_url = next(one.admin_url for one in status.regions if one.name == region)
        path = topic.replace("://", "/")
        request = urllib.request.Request(
            f"{admin_url}/admin/v2/{path}/partitions",
            method="PUT",
            data=str(partitions).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 204

    def lines(self, actor: str, op: str = "", outcome: str = "") -> list[dict[str, Any]]:
        """Return the lines of an actor's history, of one kind if one is named."""
        text = (self.run_dir / "history" / f"{actor}.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        return [
            line
            for line in lines
            if (not op or line["op"] == op) and (not outcome or line["outcome"] == outcome)
        ]

    def file(self, actor: str) -> HistoryFile:
        """Return the state of an actor's history file."""
        created = json.loads((self.run_dir / "run.json").read_text())["created_at"]
        return inspect_file(self.run_dir / "history" / f"{actor}.jsonl", created, {actor})

    def stored(self, region: str, topic: str = TOPIC) -> list[dict[str, Any]]:
        """Return the messages of a region's log, in order."""
        log = next(one for one in open_run_folder(self.run_dir).logs if one.region == region)
        columns = EntryColumns(region)
        for rows in plan(log):
            for group in read_groups(log, rows):
                columns.add_group(group)
        rows_read = columns.take().to_pylist()
        return [row for row in rows_read if row["topic"] == topic and row["marker_type"] is None]


def asked_and_stored(
    live: LiveRun, actor: str, region: str, topic: str
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return, by producer and number, payload and attributes from the history and from the log."""
    requested = {
        (line["producer"], line["sequence_id"]): (
            digest_number(line["payload_digest"]),
            digest_number(line["attributes_digest"]) if "attributes_digest" in line else 0,
        )
        for line in live.lines(actor, "publish", "asked")
    }
    stored = {
        (row["producer_name"], row["sequence_id"]): (row["payload_digest"], row["attributes_digest"])
        for row in live.stored(region, topic)
    }
    return requested, stored


@contextmanager
def regions_up(folder: Path) -> Iterator[LiveRun]:
    file = write_topology(folder)
    file.write_text(file.read_text().replace("{regions: all}", "{regions: all, deduplication: true}"))
    runtime = ProcessRuntime.create(load_topology(file), folder / "run")
    try:
        asyncio.run(runtime.up())
        yield LiveRun(runtime)
        asyncio.run(runtime.down())
    finally:
        end_all(folder / "run")
