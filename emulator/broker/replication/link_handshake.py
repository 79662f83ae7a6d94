"""The handshake of a link: this region authenticates at a peer, within a time limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from emulator.broker.replication import peer_auth
from emulator.config.region import RegionConfig
from emulator.wire import commands

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 15.0
"""Maximum time from an open connection to CONNECTED; longer than what the remote region allows, which sends ERROR."""


class LinkHandshake:
    """The handshakes of one link, one for each connection."""

    def __init__(
        self,
        config: RegionConfig,
        peer: str,
        write: Callable[[bytes], None],
        timed_out: Callable[[float], None],
    ) -> None:
        """`timed_out` is called with the time limit if a handshake does not end within it."""
        self._config = config
        self._peer = peer
        self._write = write
        self._timed_out = timed_out
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Send CONNECT on a new connection, and limit the time until `end`."""
        self._timer = asyncio.get_running_loop().call_later(
            HANDSHAKE_SECONDS, self._timed_out, HANDSHAKE_SECONDS
        )
        name = self._config.region.encode()
        connect = commands.Connect(
            "geoemu-replicator",
            commands.PROTOCOL_VERSION,
            peer_auth.METHOD,
            name,
            wants_source_positions=True,
        )
        self._write(connect.encode())

    def respond(self, challenge: commands.AuthChallenge) -> None:
        """Send the proof that this is the region that it claims to be."""
        if challenge.method == peer_auth.METHOD:
            config = self._config
            proof = peer_auth.proof_of(config.run_secret, challenge.data, config.region, self._peer)
            self._write(commands.AuthResponse(challenge.method, proof + self._token()).encode())

    def _token(self) -> bytes:
        """Return the token of this region, as its file contains it now; empty: it has none."""
        authentication = self._config.security.authentication
        if authentication is None or not authentication.region_token:
            return b""
        try:
            return Path(authentication.region_token).read_bytes().strip()
        except OSError as failure:  # the peer refuses the connection, which is retried
            logger.warning("the token of this region cannot be read: %s", failure)
            return b""

    def end(self) -> None:
        """End the time limit: the link is established, or the connection ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
