"""Verified credentials, and the reasons for which credentials are refused."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Protocol

ROLE_CHARACTERS_MAX: Final = 1_000


class Refused(Exception):
    """Credentials that are refused. The text contains nothing of the credentials."""

    def __init__(self, reason: str, sentence: str) -> None:
        """`reason`: a label of `geoemu_refused_authentications_total`."""
        self.reason = reason
        super().__init__(sentence)


class TooManyFailures(Refused):
    """Credentials that are not read, because too many of their host were wrong."""

    def __init__(self, host: str, wait_seconds: float) -> None:
        self.retry_seconds = max(1, ceil(wait_seconds))
        super().__init__(
            "too-many",
            f"too many failed authentications from {host or 'this host'}; retry in {self.retry_seconds} s",
        )


@dataclass(frozen=True, slots=True)
class Credential:
    """A role that was proved, and the end of the proof."""

    role: str
    expires_ms: int | None = None
    """Wall clock time at which the credential expires. None: never."""

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms


class Provider(Protocol):
    """Verifies the credentials of one authentication method."""

    def verify(self, data: bytes, certificate: Any, now_ms: int) -> Credential:
        """Return the role that `data`, or the verified certificate of the client's connection, proves.

        :param certificate: the result of `getpeercert` of the connection; None without TLS
        :raises Refused: for anything else
        """
        ...


def checked_role(role: Any, source: str) -> str:
    """Return a role that a credential contains. Refused if it is no name that logs and policies can contain."""
    if not isinstance(role, str) or not role:
        raise Refused("role", f"{source} contains no role")
    if len(role) > ROLE_CHARACTERS_MAX or not role.isprintable():
        raise Refused(
            "role",
            f"{source} contains a role that is no printable text of {ROLE_CHARACTERS_MAX} characters at most",
        )
    return role
