"""Write the figures of the concept pages: `make docs`. Each is a diagram of lanes, in which time runs down.

A row of a figure is an arrow between two lanes, a note on one lane, a line across all lanes, or a cross at the end of a
lane that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent.parent / "docs" / "concepts"
LANE_WIDTH: Final = 260
MARGIN: Final = 110
HEAD: Final = 46
ROW: Final = 38
STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933;text-anchor:middle}"
    "text{paint-order:stroke;stroke:#fff;stroke-width:4px}"
    ".head{font-weight:600}.small{font-size:12px;fill:#52606d;stroke:none}.side{text-anchor:start}"
    ".lane{stroke:#9aa5b1;stroke-width:1.5}.arrow{stroke:#0b6bcb;stroke-width:1.6;marker-end:url(#tip)}"
    ".late{stroke-dasharray:5 4}.note{fill:#eef4fb;stroke:#9db8d6}.cross{stroke:#c62828;stroke-width:3}"
    ".rule{stroke:#c62828;stroke-dasharray:3 4}"
)


@dataclass(frozen=True)
class Arrow:
    source: str
    target: str
    text: str
    late: bool = False
    """Drawn dashed: what does not arrive, or arrives too late."""


@dataclass(frozen=True)
class Note:
    lane: str
    text: str


@dataclass(frozen=True)
class Across:
    text: str


@dataclass(frozen=True)
class Cross:
    lane: str
    text: str


Row = Arrow | Note | Across | Cross


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    lanes: Sequence[str]
    rows: Sequence[Row]
    _at: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._at.update({lane: MARGIN + LANE_WIDTH * index for index, lane in enumerate(self.lanes)})

    def svg(self) -> str:
        width = 2 * MARGIN + LANE_WIDTH * (len(self.lanes) - 1)
        height = HEAD + ROW * (len(self.rows) + 1)
        ends = {row.lane: index for index, row in enumerate(self.rows) if isinstance(row, Cross)}
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0L8 4L0 8z" fill="#0b6bcb"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>',
        ]
        for lane, x in self._at.items():
            bottom = HEAD + ROW * (ends[lane] + 1) if lane in ends else height - 8
            parts.append(f'<text class="head" x="{x}" y="26">{escape(lane)}</text>')
            parts.append(f'<line class="lane" x1="{x}" y1="{HEAD - 8}" x2="{x}" y2="{bottom}"/>')
        parts += [self._row(row, HEAD + ROW * (index + 1), width) for index, row in enumerate(self.rows)]
        return "\n".join([*parts, "</svg>", ""])

    def _row(self, row: Row, y: int, width: int) -> str:
        match row:
            case Arrow(source, target, text, late):
                start, end = self._at[source], self._at[target]
                kind = "arrow late" if late else "arrow"
                label = f'<text x="{(start + end) // 2}" y="{y - 7}">{escape(text)}</text>'
                return f'<line class="{kind}" x1="{start}" y1="{y}" x2="{end}" y2="{y}"/>{label}'
            case Note(lane, text):
                half = max(30, round(len(text) * 3.4) + 8)
                x = min(max(self._at[lane], half + 4), width - half - 4)
                box = (
                    f'<rect class="note" x="{x - half}" y="{y - 20}" width="{2 * half}" height="24" rx="4"/>'
                )
                return f'{box}<text class="small" x="{x}" y="{y - 4}">{escape(text)}</text>'
            case Across(text):
                line = f'<line class="rule" x1="10" y1="{y}" x2="{width - 10}" y2="{y}"/>'
                return f'{line}<text class="small" x="{width // 2}" y="{y - 6}">{escape(text)}</text>'
            case Cross(lane, text):
                x = self._at[lane]
                cross = f'<path class="cross" d="M{x - 8} {y - 8}L{x + 8} {y + 8}M{x + 8} {y - 8}L{x - 8} {y + 8}"/>'
                return f'{cross}<text class="small side" x="{x + 16}" y="{y + 4}">{escape(text)}</text>'


FIGURES: Final = (
    Figure(
        "geo-replication",
        "A publish is acknowledged by its region and replicated afterwards; a lost region takes the rest with it.",
        ("client", "us-east", "eu-central"),
        (
            Arrow("client", "us-east", "publish m1"),
            Note("us-east", "m1 is on disk"),
            Arrow("us-east", "client", "acknowledged"),
            Arrow("us-east", "eu-central", "m1, with its origin"),
            Note("eu-central", "m1 is on disk"),
            Arrow("client", "us-east", "publish m2"),
            Arrow("us-east", "client", "acknowledged"),
            Arrow("us-east", "eu-central", "m2 is on its way", late=True),
            Cross("us-east", "lost for good"),
            Note("eu-central", "m2 is unrecovered: it counts for the RPO"),
        ),
    ),
    Figure(
        "replicated-subscriptions",
        "A snapshot relates positions of two logs; when mark-delete passes it, the other region receives an update.",
        ("consumer", "us-east", "eu-central"),
        (
            Arrow("us-east", "eu-central", "snapshot request (a marker in the log)"),
            Arrow("eu-central", "us-east", "snapshot response: my position is 5:40"),
            Note("us-east", "snapshot: here 3:57, eu-central 5:40"),
            Arrow("us-east", "consumer", "messages up to 3:60"),
            Arrow("consumer", "us-east", "acknowledges everything up to 3:60"),
            Arrow("us-east", "eu-central", "subscription update: 5:40"),
            Note("eu-central", "mark-delete 5:40"),
            Cross("us-east", "killed"),
            Across("fail-over: the consumer connects to eu-central"),
            Arrow("eu-central", "consumer", "messages after 5:40; a few of them again"),
        ),
    ),
    Figure(
        "exclusive-producers",
        "A second exclusive producer takes over with a higher epoch, and the first one is fenced for good.",
        ("leader A", "us-east", "leader B"),
        (
            Arrow("leader A", "us-east", "producer, WaitForExclusive"),
            Arrow("us-east", "leader A", "ready, epoch 0"),
            Arrow("leader B", "us-east", "producer, WaitForExclusive"),
            Note("us-east", "B waits in the queue"),
            Note("leader A", "loses its connection"),
            Note("us-east", "epoch 1 is on disk"),
            Arrow("us-east", "leader B", "ready, epoch 1"),
            Arrow("leader A", "us-east", "reconnects with epoch 0"),
            Arrow("us-east", "leader A", "ProducerFenced"),
        ),
    ),
    Figure(
        "wait-queue-priority",
        "When the owner fails, the waiting producer with the highest priority is promoted, then the oldest.",
        ("host 1", "topic", "host 2, priority 1", "host 3, priority 5"),
        (
            Arrow("host 1", "topic", "owner"),
            Arrow("host 2, priority 1", "topic", "waits since 10:00"),
            Arrow("host 3, priority 5", "topic", "waits since 10:05"),
            Cross("host 1", "failed"),
            Note("topic", "highest priority first, then the oldest"),
            Arrow("topic", "host 3, priority 5", "promoted"),
            Note("host 2, priority 1", "remains the next one"),
        ),
    ),
    Figure(
        "transaction-keys",
        "A newer task with the same transaction key fences the older one and aborts its open transaction.",
        ("task, first instance", "coordinator", "task, second instance"),
        (
            Arrow("task, first instance", "coordinator", "connect, key settle-7"),
            Arrow("coordinator", "task, first instance", "epoch 0"),
            Arrow("task, first instance", "coordinator", "transaction 12: publishes, acknowledges"),
            Note("task, first instance", "seems to be dead"),
            Arrow("task, second instance", "coordinator", "connect, key settle-7"),
            Note("coordinator", "abort of 12 and epoch 1 are on disk"),
            Arrow("coordinator", "task, second instance", "epoch 1"),
            Arrow("task, first instance", "coordinator", "commit 12"),
            Arrow("coordinator", "task, first instance", "NotAllowed: expired transaction"),
        ),
    ),
    Figure(
        "metadata-synchronisation",
        "Two clusters change one policy at the same time; the later change wins in both.",
        ("admin", "cluster americas", "cluster europe", "another admin"),
        (
            Arrow("admin", "cluster americas", "retention 1 day"),
            Note("cluster americas", "stored with its event, time 100"),
            Arrow("another admin", "cluster europe", "retention 7 days"),
            Note("cluster europe", "stored with its event, time 104"),
            Arrow("cluster americas", "cluster europe", "event: 1 day, time 100"),
            Note("cluster europe", "older: 7 days remains"),
            Arrow("cluster europe", "cluster americas", "event: 7 days, time 104"),
            Note("cluster americas", "newer: 7 days"),
        ),
    ),
)


def figures() -> dict[Path, str]:
    """Return the content of each file."""
    return {FOLDER / f"{figure.name}.svg": figure.svg() for figure in FIGURES}


def main() -> None:
    for path, content in figures().items():
        path.write_text(content)


if __name__ == "__main__":
    main()
