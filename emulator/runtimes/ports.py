"""Ports that regions keep while they are down.

A free port chosen by the system is in the ephemeral range: while a region is down, any outgoing connection may get its
port, and a client that keeps reconnecting may even connect to itself. So free ports are chosen below that range.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from emulator.errors import Refused
from emulator.net.addresses import in_url
from emulator.runtimes.listening import PLACES

_OUTGOING_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT = 15_000
"""Below are many that other programs are known by."""
_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class WantedPort:
    """One port that a region needs."""

    region: str
    key: str
    """`service_port` or `admin_port`: what a person would change."""
    host: str
    port: int
    """0: any that is free."""


def choose_ports(wanted: Iterable[WantedPort]) -> list[int]:
    """One port for each, in order, all different and free at this moment. Refused when one is in use."""
    wanted = list(wanted)
    chosen: dict[int, int] = {}
    with ExitStack() as held:
        fixed_first = sorted(range(len(wanted)), key=lambda index: wanted[index].port == 0)
        for index in fixed_first:
            listener = held.enter_context(_hold(wanted[index]))
            chosen[index] = listener.getsockname()[1]
    return [chosen[index] for index in range(len(wanted))]


def _hold(wanted: WantedPort) -> socket.socket:
    try:
        return _bind(wanted.host, wanted.port) if wanted.port else _bind_any(wanted.host)
    except OSError as failure:
        where = f"`{wanted.key}` of region {wanted.region}"
        if failure.errno == errno.EADDRINUSE:
            message = (
                f"port {wanted.port} is in use: end the program that listens there, or change {where} "
                f"(0 picks a free port)"
            )
        else:
            reason = failure.strerror or str(failure)
            place = f"the address of region {wanted.region} ({PLACES})"
            place += f" or {where}" if wanted.port else ""
            message = f"cannot listen on {in_url(wanted.host)}:{wanted.port} ({reason}): change {place}"
        raise Refused(message) from failure


def _bind_any(host: str) -> socket.socket:
    highest = _lowest_outgoing_port() - 1
    for _ in range(_ATTEMPTS if highest > LOWEST_PORT else 0):
        try:
            return _bind(host, random.randint(LOWEST_PORT, highest))
        except OSError as failure:
            if failure.errno != errno.EADDRINUSE:
                raise
    return _bind(host, 0)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # As the region itself will do it: connections still fading away do not count as use.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1)  # without it two such sockets could share the port
    except OSError:
        listener.close()
        raise
    return listener


def _lowest_outgoing_port() -> int:
    try:
        return int(_OUTGOING_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
