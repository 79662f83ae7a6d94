"""A program that does not record itself: a tap stands between it and the regions, and writes its history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from emulator.recording.environment import Addressed
from emulator.recording.tap.tap import Tap
from emulator.run.history import HistoryWriter


@dataclass(frozen=True, slots=True)
class _Tapped:
    """A region as the program is told of it."""

    name: str
    service_url: str
    admin_url: str


class TappedProgram:
    """The tap of one program, open from its first life to the end of the play."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._path = run_dir / "history" / f"{name}.jsonl"
        self._name = name
        self._history: HistoryWriter | None = None
        self._tap: Tap | None = None
        self._regions: tuple[_Tapped, ...] = ()

    async def in_front_of(self, regions: Iterable[Addressed]) -> tuple[_Tapped, ...]:
        """The same regions, with the addresses of the tap: the same ones each time."""
        if self._tap is None:
            known = list(regions)
            self._history = HistoryWriter(self._path, self._name, program="geoemu tap", others=["scenario"])
            self._tap = Tap(self._history)
            opened = await self._tap.open((one.name, one.service_url) for one in known)
            self._regions = tuple(
                _Tapped(one.name, there.service_url, one.admin_url)
                for one, there in zip(known, opened, strict=True)
            )
        return self._regions

    async def close(self) -> None:
        """Write the end. Twice is harmless."""
        if self._tap is not None and self._history is not None:
            await self._tap.close()
            self._history.close()
