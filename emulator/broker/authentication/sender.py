"""The authenticated sender of a request at the HTTP port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from emulator.broker.authorization import TrustLevel
from emulator.model.principals import NO_PRINCIPAL, Principal
from emulator.net.http_server import RequestHead


class Sender(NamedTuple):
    """Level of trust and roles of a sender."""

    trust: TrustLevel = TrustLevel.CLIENT
    principal: Principal = NO_PRINCIPAL


ANY_CLIENT: Final = Sender()
"""The sender of every request where the region does not authenticate clients."""

Authenticate = Callable[[RequestHead], Sender]
"""Returns the sender of a request. HttpError for missing or wrong credentials."""


def accept_all(head: RequestHead) -> Sender:
    """Return ANY_CLIENT, in a region that does not authenticate clients."""
    return ANY_CLIENT
