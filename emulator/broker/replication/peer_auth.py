"""Authentication between the regions of a run, so that no client can pose as a region.

    connecting region (source)                             accepting region (target)
        CONNECT method=geoemu-region data=source     ──▶    is it a peer of this region?
        ◀── AUTH_CHALLENGE 16 random bytes
        AUTH_RESPONSE HMAC-SHA256(secret, bytes, both names), token ──▶   is it valid?
        ◀── CONNECTED; from here on the connection is a `Peer`

All regions of a run share the secret, and read it when they start (`region.json`); clients do not have it. Both names
are in the proof, so a proof for one region is invalid for another. Ordinary clients never use this method and are
unaffected. The token follows the proof only if the topology has one for regions (`emulator.broker.authentication`).

A real Pulsar cluster cannot know a run's secret. A declared cluster authenticates with the token of its declaration, as
any Pulsar client does (CONNECT method=token).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from emulator.config.region import PulsarPeerConfig, RegionConfig
from emulator.core.admission import ClientProducer, Peer, PeerPermission, Publisher
from emulator.errors import ProtocolError, ServerError
from emulator.wire.commands import Connect

METHOD = "geoemu-region"
TOKEN_METHOD = "token"
"""Name of Pulsar's own token authentication."""
NONCE_BYTES = 16
PROOF_BYTES = 32
REPLICATOR_PREFIX = "pulsar.repl."
"""Prefix of producer names that are reserved for regions."""


def replicator_name(source: str, target: str) -> str:
    """Return the name of the producer by which `source` replicates into `target`, as in Pulsar."""
    return f"{REPLICATOR_PREFIX}{source}-->{target}"


def proof_of(run_secret: str, nonce: bytes, source: str, target: str) -> bytes:
    """Return the proof of the connecting region `source`. Names are prefixed by their length, so that no two pairs
    produce the same bytes."""
    names = b"".join(len(name).to_bytes(2, "big") + name for name in (source.encode(), target.encode()))
    return hmac.digest(run_secret.encode(), nonce + names, hashlib.sha256)


@dataclass(frozen=True, slots=True)
class Challenge:
    """The challenge that was sent on a connection that claims to be a region's."""

    region: str
    nonce: bytes

    def verify(self, config: RegionConfig, method: str, answer: bytes) -> tuple[Peer, bytes]:
        """Verify a proof, and return the region as a `Peer`, and the token that follows the proof. ProtocolError, which
        ends the connection, when the proof is not that region's."""
        expected = proof_of(config.run_secret, self.nonce, self.region, config.region)
        proof, token = answer[:PROOF_BYTES], answer[PROOF_BYTES:]
        if method != METHOD or not hmac.compare_digest(proof, expected):
            raise _authentication_error(
                f"this is not region {self.region!r} of the run that region {config.region} is in"
            )
        return Peer(self.region), token


@dataclass(frozen=True, slots=True)
class Handshake:
    """State of a connection whose CONNECT (`greeting`) names a region, until its proof arrives."""

    greeting: Connect
    challenge: Challenge


def challenge(config: RegionConfig, claimed: bytes, random_bytes: Callable[[int], bytes]) -> Challenge:
    """Return the challenge for a connection that names a region. ProtocolError, which ends the connection, when that is
    not a peer, or this region has no run secret."""
    name = claimed.decode(errors="replace")
    if name not in {peer.region for peer in config.peers}:
        raise _authentication_error(f"{name!r} is not a peer of region {config.region}")
    if not config.run_secret:
        raise _authentication_error(
            f"region {config.region} has no run secret, so no peer can be authenticated"
        )
    return Challenge(name, random_bytes(NONCE_BYTES))


def declared_peer(declared: Iterable[PulsarPeerConfig], method: str, token: bytes) -> Peer | None:
    """Return the declared Pulsar cluster with this token; None for any other client."""
    if method != TOKEN_METHOD:
        return None
    for one in declared:
        if hmac.compare_digest(one.token.encode(), token):
            return Peer(one.name, frozenset(map(PeerPermission, one.may)))
    return None


def publisher_of(peer: Peer | None, name: str, connection: str) -> Publisher:
    """Return the publisher for a producer name on a connection that is authenticated as `peer`; None: a client's
    connection. Called once, when the producer attaches. ProtocolError when the name is reserved for a region other than
    `peer`."""
    if not name.startswith(REPLICATOR_PREFIX):
        return ClientProducer(name, connection)
    if peer is None:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"producer name {name!r} belongs to a region; this connection is not authenticated as one",
        )
    source, _, _ = name.removeprefix(REPLICATOR_PREFIX).partition("-->")
    if source != peer.region:
        raise ProtocolError(
            ServerError.NotAllowedError, f"producer name {name!r} does not belong to region {peer.region!r}"
        )
    return peer


def _authentication_error(sentence: str) -> ProtocolError:
    return ProtocolError(ServerError.AuthenticationError, sentence, closes_connection=True)
