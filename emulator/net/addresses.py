"""Addresses on which regions listen: their syntax, and whether other machines can reach them."""

from __future__ import annotations

import re
from socket import AF_INET, AF_INET6, inet_pton
from typing import Final

LOOPBACK: Final = "127.0.0.1"
HOST_RULE: Final = "must be an IPv4 address, an IPv6 address without brackets, or a host name; without a port"
_MAPPED: Final = bytes(10) + b"\xff\xff"
"""Prefix of IPv6 addresses that map an IPv4 address; IPv6-only sockets cannot listen on them."""
_NAME: Final = re.compile(r"([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.(?=[^.])|\.?$))+")


def is_host(text: str) -> bool:
    """Whether a text is a valid address or host name. IPv4-mapped addresses are not valid, nor are names whose last
    label is a number."""
    packed = _packed(text)
    if packed is not None:
        return not packed.startswith(_MAPPED)
    last = text.removesuffix(".").rpartition(".")[2]
    return len(text) < 255 and not last.isdigit() and _NAME.fullmatch(text) is not None


def is_loopback(host: str) -> bool:
    """Whether only programs of the same machine can reach a host: a loopback address or the name `localhost`."""
    packed = _packed(host)
    if packed is None:
        return host.lower() == "localhost"
    return packed[0] == 127 if len(packed) == 4 else packed == bytes(15) + b"\x01"


def is_wildcard(host: str) -> bool:
    """Whether listening on a host means listening on every address of the machine."""
    packed = _packed(host)
    return packed is not None and not any(packed)


def nearby(host: str) -> str:
    """Return the host to which programs of this machine connect when a port listens on `host`."""
    if not is_wildcard(host):
        return host
    return "::1" if _family(host) == AF_INET6 else LOOPBACK


def in_url(host: str) -> str:
    """Return a host in the form of URLs: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def _packed(text: str) -> bytes | None:
    """Return the bytes of an address; None: the text is no address."""
    try:
        return inet_pton(_family(text), text)
    except (OSError, ValueError):
        return None


def _family(text: str) -> int:
    return AF_INET6 if ":" in text else AF_INET
