"""An owner in a process of its own, to be paused, killed or fenced: appends until it is fenced.

    python -m tests.storage.kafka_owner BOOTSTRAP_SERVERS PREFIX ACKNOWLEDGED_FILE

Writes a line `entry id, data` for each acknowledged entry. Ends with code 3 when it is fenced.
"""

from __future__ import annotations

import asyncio
import sys

from emulator.errors import StorageFenced
from emulator.storage.kafka import open_kafka

FENCED = 3
GROUP = 5


async def write(bootstrap_servers: str, prefix: str, path: str) -> int:
    store = await open_kafka("eu", bootstrap_servers, {"topic_prefix": prefix})
    log = await store.open_log("t")
    assert log is not None
    number = 0
    with open(path, "w", buffering=1) as acknowledged:
        while True:
            issued = [log.append([b"old %d" % (number + i)]) for i in range(GROUP)]
            outcomes = await asyncio.gather(*issued, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, StorageFenced):
                    return FENCED
                acknowledged.write(f"{outcome} old {number}\n")
                number += 1


if __name__ == "__main__":
    sys.exit(asyncio.run(write(*sys.argv[1:])))
