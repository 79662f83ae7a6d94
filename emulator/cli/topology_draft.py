"""A topology that `geoemu init` writes: its files, checked before any of them exists."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.errors import Refused


@dataclass(frozen=True, slots=True)
class TopologyDraft:
    """The content of a topology and its clusters."""

    name: str
    clusters: Mapping[str, Sequence[str]]
    """Cluster -> its regions."""
    latency_ms: float
    namespaces: Mapping[str, Mapping[str, Any]]
    """Namespace -> its keys in a topology file."""
    tenants: Sequence[str] = field(default=("public",))

    def write(self, folder: Path) -> list[Path]:
        """Write the files to a folder, and return their paths. Raises Refused if one exists or cannot be written,
        ConfigurationError if the draft is no valid topology; then nothing is written."""
        files = {folder / name: text for name, text in self._texts().items()}
        try:
            if existing := [str(path) for path in files if path.exists()]:
                raise Refused(
                    f"{', '.join(existing)} exists: choose another folder with --output, or delete it"
                )
            self._check()
            (folder / "clusters").mkdir(parents=True, exist_ok=True)
            for path, text in files.items():
                path.write_text(text, encoding="utf-8")
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise Refused(f"the topology cannot be written to {folder}: {reason}") from problem
        return list(files)

    def _check(self) -> None:
        from emulator.config.loading import load_topology

        with tempfile.TemporaryDirectory(prefix="geoemu-init-") as folder:
            (Path(folder) / "clusters").mkdir()
            for name, text in self._texts().items():
                if "/" in name.removeprefix("clusters/"):
                    raise Refused(f"{name!r}: the name of a cluster contains no '/'")
                (Path(folder) / name).write_text(text, encoding="utf-8")
            load_topology(Path(folder) / "topology.yaml")

    def _texts(self) -> dict[str, str]:
        topology = {
            "name": self.name,
            "clusters": list(self.clusters),
            "links": {"defaults": {"latency_ms": self.latency_ms}},
            "tenants": list(self.tenants),
            "namespaces": {name: dict(keys) for name, keys in self.namespaces.items()},
        }
        if len(self.clusters) > 1:
            events = "persistent://pulsar/system/metadata-events"
            topology["settings"] = {"configuration_metadata_sync_event_topic": events}
        texts = {"topology.yaml": _yaml(topology)}
        for cluster, regions in self.clusters.items():
            texts[f"clusters/{cluster}.yaml"] = _yaml({"regions": {region: {} for region in regions}})
        return texts


def _yaml(content: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)
