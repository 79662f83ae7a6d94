"""What the client of an actor needs to connect to the regions of a run: files for TLS, and credentials."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.net.credentials import NO_CREDENTIALS, Credentials, credentials_from
from emulator.net.tls import Certificates


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """Paths only: commands to the process of an actor contain it."""

    tls: Certificates | None = None
    """None: the client uses the ports without TLS."""
    credentials: Credentials = NO_CREDENTIALS

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any] | None) -> ClientSecurity:
        """Parse what `to_json` wrote. None: neither TLS nor credentials."""
        if raw is None:
            return NO_SECURITY
        tls = None if raw["tls"] is None else Certificates(**raw["tls"])
        return cls(tls, credentials_from(raw["credentials"]))


NO_SECURITY = ClientSecurity()
