"""Faults of single frames on the connections of a link: pure rules, without a clock or an event loop.

    bytes ──▶ FrameSplitter ──frames──▶ ArmedFaults.decide ──▶ FrameFilter ──▶ bytes
                                        (shared by the          (one connection, one direction:
                                         connections of a link)  delayed and reordered frames wait)

A link without armed faults splits nothing. A fault may be armed in the middle of a frame whose first bytes the receiver
already has: the rest of that frame passes unchanged, and the first whole frame after it is the first that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from struct import Struct
from typing import Final

from emulator.errors import ProtocolError
from emulator.model.frame_faults import COMMANDS, MARKERS, FrameAction, FrameFault
from emulator.wire.command_types import CommandType
from emulator.wire.frames import FrameBuffer
from emulator.wire.message_metadata import scan_entry

FRAME_BYTES_MAX: Final = 134_217_728
"""Maximum size of a frame. A stream that announces a larger one is not split any more."""
_SIZES: Final = Struct(">II")
_UNSPLIT: Final = ""
"""Name of bytes that are no whole frame."""

NAMES: Final = {getattr(CommandType, name.upper()): name for name in COMMANDS}
"""Command type -> name."""
_MARKER_NAMES: Final = {type_: name for name, type_ in MARKERS.items()}
_CARRIERS: Final = (CommandType.SEND, CommandType.MESSAGE)


def name_of(frame: bytes) -> str:
    """Return the name of a whole frame: its marker's or its command's; empty if it has none that is known."""
    try:
        frames = FrameBuffer(FRAME_BYTES_MAX).feed(frame)
        type_, _, entry = frames[0]
        if type_ in _CARRIERS and entry:
            marker_type = scan_entry(entry).marker_type
            if marker_type in _MARKER_NAMES:
                return _MARKER_NAMES[marker_type]
    except (ProtocolError, IndexError):
        return _UNSPLIT
    return NAMES.get(type_, _UNSPLIT)


class FrameSplitter:
    """Splits a byte stream into whole frames, without changing a byte."""

    def __init__(self, received: bytes = b"") -> None:
        """`received`: the bytes of an incomplete frame that the receiver already has."""
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = 0
        """Number of held bytes at which `_parts` are parsed again."""
        self._begun = len(received)
        """Number of bytes at the beginning of `_parts` that the receiver has."""
        self._is_broken = False
        if received:
            self._hold(received)

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Add bytes; return what is complete: (bytes, whether they are one whole frame)."""
        if self._is_broken:
            return [(data, False)] if data else []
        self._parts.append(data)
        self._held += len(data)
        if self._held < self._needed or not data:
            return []
        return self._split(self._take())

    def rest(self) -> bytes:
        """Return the bytes that wait for the rest of their frame, and hold them no longer."""
        begun = self._begun
        return self._take()[begun:]

    def _take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        self._held = self._needed = 0
        return data

    def _hold(self, rest: bytes) -> None:
        """Keep the bytes of an incomplete frame."""
        self._parts, self._held = [rest], len(rest)
        self._needed = _SIZES.size
        if len(rest) >= _SIZES.size:
            self._needed = 4 + _SIZES.unpack_from(rest)[0]

    def _split(self, data: bytes) -> list[tuple[bytes, bool]]:
        pieces: list[tuple[bytes, bool]] = []
        at = 0
        while len(data) - at >= _SIZES.size:
            total_size, command_size = _SIZES.unpack_from(data, at)
            end = at + 4 + total_size
            if total_size > FRAME_BYTES_MAX or command_size + 4 > total_size:
                self._is_broken = True
                pieces.append((self._without_begun(data[at:]), False))
                return pieces
            if end > len(data):
                break
            is_whole = not self._begun
            pieces.append((self._without_begun(data[at:end]), is_whole))
            at = end
        if at < len(data):
            self._hold(data[at:])
        return pieces

    def _without_begun(self, data: bytes) -> bytes:
        begun, self._begun = self._begun, 0
        return data[begun:]


@dataclass(slots=True)
class ArmedFault:
    """A fault and what it has done on all connections of its link since it was armed."""

    fault: FrameFault
    seen: int = 0
    """Number of matching frames."""
    acted: int = 0
    """Number of frames on which it acted."""

    @property
    def is_spent(self) -> bool:
        return self.acted >= self.fault.count

    def meet(self) -> bool:
        """Count a matching frame; return whether the fault wants to act on it."""
        self.seen += 1
        return not self.is_spent and self.seen >= self.fault.nth


class ArmedFaults:
    """The faults of one direction of a link."""

    def __init__(self, faults: Iterable[FrameFault] = ()) -> None:
        self.armed: dict[FrameFault, ArmedFault] = {}
        self.note_action: Callable[[], object] = lambda: None
        """Called after each frame on which a fault acted."""
        self.is_active = False
        """Whether a fault may still act."""
        self.arm(faults)

    def arm(self, faults: Iterable[FrameFault]) -> None:
        """Arm exactly these faults: new ones begin to count, known ones continue, others are disarmed."""
        self.armed = {fault: self.armed.get(fault) or ArmedFault(fault) for fault in faults}
        self._update()

    def decide(self, name: str) -> FrameFault | None:
        """Count a frame; return the fault that acts on it. Of several faults the one that was armed first acts; the
        next one acts on the next matching frame."""
        chosen: ArmedFault | None = None
        for armed in self.armed.values():
            if armed.fault.what == name and armed.meet() and chosen is None:
                chosen = armed
        if chosen is None:
            return None
        chosen.acted += 1
        self._update()
        self.note_action()
        return chosen.fault

    def _update(self) -> None:
        self.is_active = any(not armed.is_spent for armed in self.armed.values())


class FrameFilter:
    """Applies the armed faults of a link to one direction of one connection."""

    def __init__(
        self, faults: ArmedFaults, received: bytes = b"", name_of: Callable[[bytes], str] = name_of
    ) -> None:
        """`received`: the bytes of an incomplete frame that the receiver already has."""
        self._faults = faults
        self._splitter = FrameSplitter(received)
        self._name_of = name_of
        self._swapped: list[bytes] = []
        """Frames that wait until the next frame has passed."""
        self._delayed: list[tuple[float, int, bytes]] = []
        """Heap of (time at which it is due, number, frame)."""
        self._count = 0

    @property
    def next_due(self) -> float | None:
        """The time at which the next delayed frame is due; None: no frame is delayed."""
        return self._delayed[0][0] if self._delayed else None

    @property
    def is_idle(self) -> bool:
        """Whether no frame waits and no fault may act: the bytes need not be split any more."""
        return not self._swapped and not self._delayed and not self._faults.is_active

    def feed(self, data: bytes, now: float) -> bytes:
        """Return the bytes to pass on at `now`, a time in seconds, of those received."""
        out: list[bytes] = []
        for piece, is_frame in self._splitter.feed(data):
            fault = self._faults.decide(self._name_of(piece)) if is_frame else None
            action = None if fault is None else fault.action
            if fault is not None and action is FrameAction.DELAY:
                self._count += 1
                heappush(self._delayed, (now + fault.by_ms / 1000, self._count, piece))
            elif action is FrameAction.REORDER:
                self._swapped.append(piece)
            elif action is not FrameAction.DROP:
                out += (piece, piece) if action is FrameAction.DUPLICATE else (piece,)
                out += self._swapped
                self._swapped.clear()
        return b"".join(out)

    def due(self, now: float) -> bytes:
        """Return the delayed frames that are due. They never end up inside another frame, because only whole frames are
        passed on."""
        out: list[bytes] = []
        while self._delayed and self._delayed[0][0] <= now:
            out.append(heappop(self._delayed)[2])
        return b"".join(out)

    def finish(self) -> bytes:
        """Return everything that waits, in the order of its frames' arrival: the bytes are not split any more."""
        delayed = [heappop(self._delayed)[2] for _ in range(len(self._delayed))]
        swapped, self._swapped = self._swapped, []
        return b"".join([*delayed, *swapped, self._splitter.rest()])
