"""Transactions of the Java client against its plain batched publishing, in one run.

    python -m benchmarks java_transactions
    python -m benchmarks.java_transactions [COORDINATORS]

One region over SQLite. 100 transactions of 10 messages are open at any time; plainly, as many messages are on their
way. Both take turns; the medians are compared. The processor time is the region's own: beside other programs it says
more than messages a second do.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.brokers import RunningBroker, geoemu, processor_seconds
from emulator.config.broker_settings import BrokerSettings

ROOT = Path(__file__).parents[1]
JARS = Path.home() / ".cache" / "geoemu" / "java-client"
TURNS = 5
TURN_SECONDS = 6
GOAL = 0.5


class _Turn(NamedTuple):
    what: str
    messages_per_second: float
    processor_us: float
    """Of the region, for a message."""
    stages_ms: tuple[str, ...]
    """Until a transaction has begun, has its ten messages stored, is committed."""


def _jars() -> Path:
    """Maven brings them once."""
    if not JARS.exists():
        pom = ROOT / "examples" / "java" / "pom.xml"
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={JARS}"], check=True)
    return JARS


def _turns(broker: RunningBroker, jars: Path) -> Iterator[_Turn]:
    source = str(Path(__file__).with_name("Transactions.java"))
    command = ["java", "-cp", f"{jars}/*", source, broker.service_url, str(TURNS), str(TURN_SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as java:
        assert java.stdout is not None
        before, used, words = 0.0, 0.0, [""]
        for line in java.stdout:
            last, words = words, line.split()
            match words[0]:
                case "begins":
                    before = processor_seconds(broker.pid)
                case "counts":
                    used = processor_seconds(broker.pid) - before
                case "took" if last[0] == "counts":
                    messages, seconds = int(last[2]), float(last[3])
                    yield _Turn(last[1], messages / seconds, 1e6 * used / messages, tuple(words[1:]))
    assert java.returncode == 0, "the Java program failed"


def table(coordinators: int = BrokerSettings().transaction_coordinators) -> str:
    """As Markdown."""
    turns: defaultdict[str, list[_Turn]] = defaultdict(list)
    jars = _jars()
    with geoemu(settings=BrokerSettings(transaction_coordinators=coordinators)) as broker:
        for turn in _turns(broker, jars):
            turns[turn.what].append(turn)
    rows = ["| Java client | messages/s | the region's processor, µs/message | goal |", "|---|---|---|---|"]
    rates = {}
    for what, some in turns.items():
        rates[what] = statistics.median(turn.messages_per_second for turn in some)
        processor_us = statistics.median(turn.processor_us for turn in some)
        rows.append(f"| {what} | {rates[what]:,.0f} | {processor_us:.1f} | |")
    ratio = statistics.median(
        one.messages_per_second / other.messages_per_second
        for one, other in zip(turns["transactions"], turns["plain"], strict=True)
    )
    rows.append(f"| transactions / plain, alternating | {ratio:.2f} | | {GOAL} |")
    stages = zip(*((map(float, turn.stages_ms)) for turn in turns["transactions"]), strict=True)
    begin, send, commit = (statistics.median(stage) for stage in stages)
    rows.append(f"| begin, ten messages, commit | {begin:.0f}, {send:.0f}, {commit:.0f} ms | | |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(*map(int, sys.argv[1:])))
