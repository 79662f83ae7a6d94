"""Starting the program of a region, and reading what it printed.

regions/<name>/region.json   its configuration
regions/<name>/output.log    what it prints, of all its starts
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import emulator
from emulator.config.region import LinkShape, PeerConfig, RegionConfig
from emulator.run.directory import write_whole

BROKER: tuple[str, ...] = (sys.executable, "-m", "emulator.broker.main")
"""The program of a region; its argument is the path of its region.json."""
LAST_LINES = 10
"""How much of a dead region's output goes into an error message."""


def start_region(
    program: Sequence[str],
    region_dir: Path,
    links: Mapping[tuple[str, str], LinkShape],
    clock_ahead_ms: int = 0,
) -> subprocess.Popen[bytes]:
    """Start a region whose region.json is there already, with the links and its clock as they are now."""
    path = region_dir / "region.json"
    config = dataclasses.replace(with_links(RegionConfig.load(path), links), clock_ahead_ms=clock_ahead_ms)
    write_whole(path, config.to_json())
    with output_log(region_dir).open("ab") as output:
        return subprocess.Popen(
            [*program, str(path)],
            cwd=region_dir,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us; we end regions in an orderly way
        )


def output_log(region_dir: Path) -> Path:
    return region_dir / "output.log"


def last_lines(log: Path) -> str:
    """The end of what a region printed, indented, for an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    except FileNotFoundError:
        lines = []
    return "\n".join(f"    {line}" for line in lines or ["(nothing)"])


def with_links(config: RegionConfig, links: Mapping[tuple[str, str], LinkShape]) -> RegionConfig:
    """The same configuration, with the links as they are now."""

    def peer_now(peer: PeerConfig) -> PeerConfig:
        return dataclasses.replace(
            peer,
            outbound=links.get((config.region, peer.region), peer.outbound),
            inbound=links.get((peer.region, config.region), peer.inbound),
        )

    return dataclasses.replace(config, peers=tuple(peer_now(peer) for peer in config.peers))


def new_run_token() -> str:
    """For `apart_from_other_runs`, the same for all regions of a run. Not made from the run directory: another run may
    be made there when this one is gone."""
    return secrets.token_hex(4)


def new_run_secret() -> str:
    """The secret by which the regions of a run authenticate each other; the same for all of them. It is stored in
    their `region.json` only."""
    return secrets.token_hex(32)


def apart_from_other_runs(config: RegionConfig, run_token: str) -> RegionConfig:
    """On a Kafka that several runs use, or that outlives one, no run finds what another one stored."""
    if config.log.backend != "kafka" or "topic_prefix" in config.log.options:
        return config
    options = {**config.log.options, "topic_prefix": f"geoemu-{run_token}"}
    return dataclasses.replace(config, log=dataclasses.replace(config.log, options=options))


def environment() -> dict[str, str]:
    """The environment for geoemu's programs: our own, and the checkout in PYTHONPATH, so that it needs no
    installation."""
    root = Path(emulator.__file__).parents[1]
    if root.name in ("site-packages", "dist-packages"):
        return dict(os.environ)
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
