"""Checks of a topology: errors of its files, and ports that other programs use."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from emulator.cli.diagnosis.finding import Finding
from emulator.config.topology import Topology
from emulator.errors import ConfigurationError, Refused

MORE = "`geoemu check` prints every error of the files; docs/reference/topology.md lists the keys"


def load_checked(file: Path, *, is_default: bool) -> tuple[Topology | None, list[Finding]]:
    """Return the topology of a file, or None, and the findings about it. A missing file is only a problem if the user
    named it."""
    from emulator.config.loading import load_topology

    if is_default and not file.exists():
        fix = "name another one with -f, or copy topology.yaml and clusters/ of the checkout"
        return None, [Finding("topology", "note", f"there is no {file} in this folder", fix)]
    try:
        topology = load_topology(file)
    except ConfigurationError as errors:
        return None, [Finding("topology", "problem", str(problem), MORE) for problem in errors.problems]
    return topology, [Finding("topology", "ok", f"{file} is valid: {len(topology.regions)} regions")]


def check_ports(topology: Topology) -> Iterator[Finding]:
    """Yield a finding for each fixed port of the topology that a region could not listen on now."""
    from emulator.runtimes.listening import WantedPort, choose_ports

    fixed = [
        WantedPort(region.name, key, region.address, port)
        for region in topology.regions
        for key, port in (("service_port", region.service_port), ("admin_port", region.admin_port))
        if port
    ]
    blocked = 0
    for wanted in fixed:
        try:
            choose_ports([wanted])
        except (Refused, socket.gaierror) as problem:
            blocked += 1
            reason, _, fix = str(problem).partition(": ")
            yield Finding("ports", "problem", f"{wanted.key} of {wanted.region}: {reason}", fix or MORE)
    if not blocked:
        free = f"the {len(fixed)} fixed ports are free" if fixed else "all ports are chosen at the start"
        yield Finding("ports", "ok", free)
