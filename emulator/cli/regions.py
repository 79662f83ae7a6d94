"""Which regions of a run a verb is about."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.model.suggestions import nearest


def regions_meant(topology: Topology, regions: Sequence[str] | None, cluster: str | None) -> list[str]:
    """The regions named, or all of a cluster, each once. Refused when a name is not in the run."""
    if cluster is None:
        for region in regions or ():
            _refuse_unknown("region", region, topology.region_names)
        return list(dict.fromkeys(regions or ()))
    _refuse_unknown("cluster", cluster, [each.name for each in topology.clusters])
    return [region.name for region in topology.regions if region.cluster == cluster]


def _refuse_unknown(kind: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        guess = nearest(name, tuple(known))
        hint = f"did you mean {guess}? " if guess else ""
        raise Refused(f"no {kind} {name!r} in this run: {hint}{kind}s are {', '.join(known)}")
