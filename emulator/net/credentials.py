"""The credentials that clients present to regions. They are files, which are read for each use: a token that was
renewed is used by the next connection, and when a region requests a newer one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Credentials:
    """At most one of them is used: a token, else a name with its password, else the certificate of the connection."""

    token: str = ""
    """Path of a file with a token. Empty: none."""
    basic: str = ""
    """Path of a file with NAME:PASSWORD. Empty: none."""
    tls: bool = False
    """Whether the client authenticates by its certificate."""

    def login(self) -> tuple[str, bytes]:
        """Return the name of the authentication method, and its data, for CONNECT. Raises OSError if a file cannot be
        read."""
        if self.token:
            return "token", Path(self.token).read_bytes().strip()
        if self.basic:
            return "basic", Path(self.basic).read_bytes().strip()
        return ("tls", b"") if self.tls else ("", b"")

    def plugin(self) -> tuple[str, str]:
        """Return Pulsar's settings authPlugin and authParams, which name the files. Empty: no plugin is needed."""
        package = "org.apache.pulsar.client.impl.auth"
        if self.token:
            return f"{package}.AuthenticationToken", f"file://{self.token}"
        if self.basic:
            name, _, password = Path(self.basic).read_text().strip().partition(":")
            return f"{package}.AuthenticationBasic", f'{{"userId":"{name}","password":"{password}"}}'
        return "", ""


NO_CREDENTIALS = Credentials()


def credentials_from(raw: Mapping[str, object] | None) -> Credentials:
    """Return the credentials that `dataclasses.asdict` wrote; none for None."""
    return NO_CREDENTIALS if raw is None else Credentials(**raw)  # type: ignore[arg-type]
