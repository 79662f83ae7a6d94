"""Read the history of a user's program while it grows, and count its operations."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from emulator.model.values import TopicName
from emulator.run.history import seal_history


class ProgramHistory:
    """The counts of one program's history; `read_on` updates them with the new lines. A program may be several
    processes: then further processes write `<name>-<process>.jsonl`."""

    def __init__(self, run_dir: Path, name: str, *, is_tapped: bool = False) -> None:
        """`is_tapped`: a tap writes `<name>.jsonl` and closes it at the end of the run."""
        self._folder = run_dir / "history"
        self._name = name
        self._is_tapped = is_tapped
        self._read_upto: dict[Path, int] = {}
        self._places: set[tuple[str, str, str]] = set()
        self._readings: dict[tuple[str, str], str] = {}
        self._published: Counter[str] = Counter()
        self._pending: set[tuple[str, str, int]] = set()
        """(session, producer, sequence id) of publishes whose outcome the program waits for."""
        self.requested = 0
        self.deliveries = 0

    @property
    def answered(self) -> int:
        """Number of publishes with an outcome, or whose outcome no process waits for any more."""
        return self.requested - len(self._pending)

    @property
    def received(self) -> int:
        """Number of different messages received."""
        return len(self._places)

    def received_in(self, region: str) -> int:
        """Return the number of different messages received in one region."""
        return sum(place[0] == region for place in self._places)

    @property
    def published(self) -> int:
        return self._published.total()

    def published_in(self, region: str) -> int:
        return self._published[region]

    @property
    def is_there(self) -> bool:
        return bool(self._files())

    def readings(self) -> list[tuple[str, str, str]]:
        """Return (region, topic, subscription) of each subscription, with the region of its last use."""
        return [(region, topic, name) for (topic, name), region in self._readings.items()]

    def read_on(self) -> None:
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
        held = False
        for file in self._files():
            if self._is_tapped and file == self._own:
                continue
            try:
                seal_history(file, why)
            except BlockingIOError:
                held = True
        self.read_on()
        return not held

    def forget_pending(self) -> None:
        """Stop waiting for outcomes, because the program has ended."""
        self._pending.clear()

    @property
    def _own(self) -> Path:
        return self._folder / f"{self._name}.jsonl"

    def _files(self) -> list[Path]:
        return [self._own] * self._own.is_file() + sorted(self._folder.glob(f"{self._name}-[0-9]*.jsonl"))

    def _note(self, line: bytes) -> None:
        try:
            said: dict[str, Any] = json.loads(line)
            match said["op"], said["outcome"]:
                case "publish", "asked":
                    self.requested += 1
                    self._pending.add(_publish_of(said))
                case "publish", outcome:
                    self._pending.discard(_publish_of(said))
                    self._published[said.get("region", "")] += outcome == "ok"
                case "receive", _:
                    self.deliveries += 1
                    self._places.add((said["region"], said["topic"], said["message_id"]))
                case "subscribe", "ok":
                    topic = str(TopicName.parse(said["topic"]))
                    self._readings[topic, said["subscription"]] = said["region"]
        except (ValueError, KeyError, TypeError):
            return  # the verdict reports malformed lines


def _publish_of(said: dict[str, Any]) -> tuple[str, str, int]:
    return said.get("session", ""), said["producer"], said["sequence_id"]
