"""Read the history of a user's program while it grows, and count its operations."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from emulator.model.values import TopicName
from emulator.run.history import seal_history


class ProgramHistory:
    """The counts of one program's history; `read_new_lines` updates them with the new lines. A program may be several
    processes: then further processes write `<name>-<process>.jsonl`."""

    def __init__(self, run_dir: Path, name: str, *, is_tapped: bool = False) -> None:
        """`is_tapped`: a tap writes `<name>.jsonl` and closes it at the end of the run."""
        self._folder = run_dir / "history"
        self._name = name
        self._is_tapped = is_tapped
        self._read_upto: dict[Path, int] = {}
        self._received_at: set[tuple[str, str, str]] = set()
        self._subscription_regions: dict[tuple[str, str], str] = {}
        self._published: Counter[str] = Counter()
        self._pending: set[tuple[str, str, int]] = set()
        """(session, producer, sequence id) of publishes whose outcome the program waits for."""
        self.requested = 0
        self.deliveries = 0

    @property
    def completed(self) -> int:
        """Number of publishes with an outcome, or whose outcome no process waits for any more."""
        return self.requested - len(self._pending)

    @property
    def received(self) -> int:
        """Number of different messages received."""
        return len(self._received_at)

    def received_in(self, region: str) -> int:
        """Return the number of different messages received in one region."""
        return sum(position[0] == region for position in self._received_at)

    @property
    def published(self) -> int:
        return self._published.total()

    def published_in(self, region: str) -> int:
        return self._published[region]

    @property
    def exists(self) -> bool:
        return bool(self._files())

    def consumed_subscriptions(self) -> list[tuple[str, str, str]]:
        """Return (region, topic, subscription) of each subscription, with the region of its last use."""
        return [(region, topic, name) for (topic, name), region in self._subscription_regions.items()]

    def read_new_lines(self) -> None:
        for file in self._files():
            start = self._read_upto.get(file, 0)
            with file.open("rb") as stream:
                stream.seek(start)
                data = stream.read()
            whole = data.rfind(b"\n") + 1
            self._read_upto[file] = start + whole
            for line in data[:whole].splitlines():
                self._note(line)

    def seal(self, why: str) -> bool:
        """Close the history files of the program's processes. Return False while a process still has a file open,
        because it is about to end or has left the process group."""
        is_open = False
        for file in self._files():
            if self._is_tapped and file == self._own_file:
                continue
            try:
                seal_history(file, why)
            except BlockingIOError:
                is_open = True
        self.read_new_lines()
        return not is_open

    def forget_pending(self) -> None:
        """Stop waiting for outcomes, because the program has ended."""
        self._pending.clear()

    @property
    def _own_file(self) -> Path:
        return self._folder / f"{self._name}.jsonl"

    def _files(self) -> list[Path]:
        return [self._own_file] * self._own_file.is_file() + sorted(
            self._folder.glob(f"{self._name}-[0-9]*.jsonl")
        )

    def _note(self, line: bytes) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
            match event["op"], event["outcome"]:
                case "publish", "asked":
                    self.requested += 1
                    self._pending.add(_publish_of(event))
                case "publish", outcome:
                    self._pending.discard(_publish_of(event))
                    self._published[event.get("region", "")] += outcome == "ok"
                case "receive", _:
                    self.deliveries += 1
                    self._received_at.add((event["region"], event["topic"], event["message_id"]))
                case "subscribe", "ok":
                    topic = str(TopicName.parse(event["topic"]))
                    self._subscription_regions[topic, event["subscription"]] = event["region"]
        except (ValueError, KeyError, TypeError):
            return  # the verdict reports malformed lines


def _publish_of(event: dict[str, Any]) -> tuple[str, str, int]:
    return event.get("session", ""), event["producer"], event["sequence_id"]
