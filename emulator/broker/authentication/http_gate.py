"""The gate of the HTTP port: decides which roles a request proves, by its headers and the certificate of its client.

    Authorization: Bearer <token>       a token (JWT), as Pulsar's tools send it
    Authorization: Basic <base64>       name and password
    Authorization: Geoemu <hex>         geoemu's own programs (`emulator.net.control`)
    no header                           the client's certificate; else the anonymous role

Like Pulsar's brokers, it serves metrics and /status.html without authentication.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
from typing import Final, NoReturn

from emulator.broker.authentication.credentials import Refused, TooManyFailures
from emulator.broker.authentication.gate import ClientGate
from emulator.broker.authentication.providers import BASIC, TLS, TOKEN
from emulator.broker.authentication.sender import ANY_CLIENT, Sender
from emulator.broker.authorization import TrustLevel
from emulator.model.principals import Principal
from emulator.net.control import SCHEME, control_credential
from emulator.net.http_server import HttpError, RequestHead

logger = logging.getLogger(__name__)

PUBLIC_PATHS: Final = ("/metrics", "/metrics/", "/status.html")
ORIGINAL_PRINCIPAL: Final = "x-original-principal"
"""Header of a proxy: the role of the client for which it acts."""
CONTROL: Final = "control"
CHALLENGES: Final = {TOKEN: 'Bearer realm="pulsar"', BASIC: 'Basic realm="pulsar"'}


class HttpGate:
    """Authenticates the requests to one region."""

    def __init__(self, gate: ClientGate, run_secret: str) -> None:
        self._gate = gate
        self._control = control_credential(run_secret) if run_secret else ""

    def authenticate(self, head: RequestHead) -> Sender:
        """Return the sender of a request. HttpError 401 for missing or wrong credentials, 403 for a role that may not
        act for another one, 429 while too many credentials of its host were wrong."""
        if head.method in ("GET", "HEAD") and head.target.partition("?")[0] in PUBLIC_PATHS:
            return ANY_CLIENT
        scheme, _, value = head.headers.get("authorization", "").partition(" ")
        if scheme.lower() == SCHEME.lower():
            return self._control_sender(head, value.strip())
        method = {"bearer": TOKEN, "basic": BASIC, "": TLS if head.certificate else "none"}.get(
            scheme.lower(), "other"
        )
        try:
            data = _data(method, value.strip())
            credential = self._gate.verify_from(head.client_host, method, data, head.certificate)
            original = self._gate.check_original(credential.role, head.headers.get(ORIGINAL_PRINCIPAL, ""))
        except Refused as refused:
            self._refuse(head, self._gate.label(method), refused)
        return Sender(TrustLevel.CLIENT, Principal(credential.role, original))

    def _control_sender(self, head: RequestHead, value: str) -> Sender:
        if not self._control or not hmac.compare_digest(self._control.encode(), value.encode()):
            self._refuse(head, CONTROL, Refused("credentials", "this is not the control of the region's run"))
        return Sender(TrustLevel.CONTROL)

    def _refuse(self, head: RequestHead, label: str, refused: Refused) -> NoReturn:
        self._gate.refusals.note(label, refused.reason)
        path = head.target.partition("?")[0]
        level = logging.DEBUG if isinstance(refused, TooManyFailures) else logging.WARNING
        logger.log(level, "refused: %s %r, method %s: %s", head.method, path[:200], label, refused)
        if isinstance(refused, TooManyFailures):
            raise HttpError(429, str(refused), (("retry-after", str(refused.retry_seconds)),))
        if refused.reason == "proxy":
            raise HttpError(403, str(refused))
        challenges = tuple(
            ("www-authenticate", text)
            for method, text in CHALLENGES.items()
            if method in self._gate.providers
        )
        raise HttpError(401, f"Authentication required: {refused}", challenges)


def _data(method: str, value: str) -> bytes:
    """Return the credentials of a header, as the binary protocol sends them."""
    if method != BASIC:
        return value.encode("latin-1", "replace")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("malformed", "basic credentials must be base64") from None
