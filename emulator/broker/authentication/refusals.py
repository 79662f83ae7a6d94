"""Refused authentications of one region: one line in the log and one count each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from emulator.broker.authentication.credentials import Refused, TooManyFailures
from emulator.errors import ProtocolError, ServerError
from emulator.net.tls import TlsRefusal

logger = logging.getLogger(__name__)

ERROR_OF_REASON: Final = {
    "proxy": ServerError.AuthorizationError,
    "too-many": ServerError.TooManyRequests,  # clients retry, as they do not after AuthenticationError
}
REGION: Final = "region"
"""The method of other regions: the secret of the run, and their token."""
TLS_HANDSHAKE: Final = "tls_handshake"
"""The method of connections that end in their TLS handshake."""


class RefusedAuthentications:
    """Counts by (method, reason). Both are names of this program, never text of a client."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._of_regions: dict[str, str] = {}
        """Other region -> why it was refused last; only peers of the region, which proved that they are."""

    def note(self, method: str, reason: str) -> None:
        self.counts[method, reason] += 1

    def note_handshake(self, refusal: TlsRefusal, sentence: str) -> None:
        """Count a failed TLS handshake of an accepted connection, and log it."""
        self.note(TLS_HANDSHAKE, refusal)
        # Port scans and health checks only connect.
        logger.log(logging.INFO if refusal is TlsRefusal.CLOSED else logging.WARNING, "%s", sentence)

    @contextmanager
    def counting(self, method: str, reason: str) -> Iterator[None]:
        """Count a ProtocolError of the block."""
        try:
            yield
        except ProtocolError:
            self.note(method, reason)
            raise

    def region_error(self, region: str, refused: Refused) -> ProtocolError:
        """Count the refusal of a region, which keeps trying. Return the error that ends the connection; it is logged
        unless the region was refused for the same reason before."""
        is_repeated = self._of_regions.get(region) == str(refused)
        self._of_regions[region] = str(refused)
        return self.error(REGION, refused, is_repeated=is_repeated)

    def region_admitted(self, region: str) -> None:
        self._of_regions.pop(region, None)

    def error(self, method: str, refused: Refused, *, is_repeated: bool = False) -> ProtocolError:
        """Count a refusal of the binary port. Return the error that ends the connection, which writes the line."""
        self.note(method, refused.reason)
        code = ERROR_OF_REASON.get(refused.reason, ServerError.AuthenticationError)
        is_repeated |= isinstance(refused, TooManyFailures)
        return ProtocolError(code, str(refused), closes_connection=True, is_repeated=is_repeated)
