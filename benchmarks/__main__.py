"""All benchmarks, or those that are named: `python -m benchmarks [--write] [NAME …]`.

`--write` puts the tables into docs/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from benchmarks import (
    against_peer,
    beside_holes,
    busy_topics,
    containers,
    hostile_clients,
    idle_costs,
    java_transactions,
    kafka,
    key_shared,
    long_backlog,
    many_connections,
    many_topics,
    metadata,
    metadata_healing,
    one_in_flight,
    open_topics,
    policy_change,
    raw_load,
    replicated_load,
    replication,
    returning_region,
    simulation,
    snapshot_schedules,
    start_regions,
    takeover,
    transactions,
    verdicts,
)

DOCUMENT = Path("docs/BENCHMARKS.md")
TABLES = {
    "raw_load": raw_load.table,
    "busy_topics": busy_topics.table,
    "beside_holes": beside_holes.table,
    "many_topics": many_topics.table,
    "start_regions": start_regions.table,
    "open_topics": open_topics.table,
    "one_in_flight": one_in_flight.table,
    "one_in_flight_on_slow_disks": one_in_flight.table_of_slow_disks,
    "policy_change": policy_change.table,
    "idle_costs": idle_costs.table,
    "many_connections": many_connections.table,
    "hostile_clients": hostile_clients.table,
    "key_shared": key_shared.table,
    "long_backlog": long_backlog.table,
    "against_peer": against_peer.table,
    "replicated_load": replicated_load.table,
    "replication": replication.table,
    "snapshot_schedules": snapshot_schedules.table,
    "returning_region": returning_region.table,
    "kafka": kafka.table,
    "containers": containers.table,
    "simulation": simulation.table,
    "metadata": metadata.table,
    "metadata_healing": metadata_healing.table,
    "takeover": takeover.table,
    "transactions": transactions.table,
    "java_transactions": java_transactions.table,
    "verdicts": verdicts.table,
}


def main(names: list[str], *, write: bool) -> None:
    for name in names or TABLES:
        text = TABLES[name]()
        print(f"\n{name}\n\n{text}", flush=True)
        if write:
            _put(name, text)


def _put(name: str, text: str) -> None:
    """Replace the text between a table's two markers."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{begin}.*?{end}", re.DOTALL)
    document = DOCUMENT.read_text()
    assert pattern.search(document), f"{DOCUMENT} has no place for {name}"
    DOCUMENT.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", document))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(TABLES))
    parser.add_argument("--write", action="store_true", help=f"put the tables into {DOCUMENT}")
    given = parser.parse_args()
    if unknown := set(given.names) - set(TABLES):
        parser.error(f"{', '.join(unknown)}: must be of {', '.join(TABLES)}")
    main(given.names, write=given.write)
