"""What a region holds after a million messages on fifty topics, beside pulsar-lite.

python -m benchmarks.busy_topics
"""

from __future__ import annotations

from benchmarks.brokers import geoemu, pulsar_lite, resident_bytes
from benchmarks.load_generator import new_topic, publish

MESSAGES = 1_000_000
TOPICS = 50


def table() -> str:
    """Resident memory as a Markdown table."""
    held = []
    for start in (geoemu, pulsar_lite):
        with start() as broker:
            publish(broker, new_topic(), MESSAGES, window=20, connections=TOPICS, topics=TOPICS)
            held.append(resident_bytes(broker.pid) / 1e6)
    return "\n".join(
        [
            "| after | geoemu (MB) | pulsar-lite (MB) | goal |",
            "|---|---|---|---|",
            f"| 1,000,000 messages of 100 B on 50 topics | {held[0]:.0f} | {held[1]:.0f} | at most 150 MB |",
        ]
    )


if __name__ == "__main__":
    print(table())
