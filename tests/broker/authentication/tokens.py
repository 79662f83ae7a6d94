"""Keys and tokens for tests of authentication."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
SECRET = b"0123456789abcdef0123456789abcdef"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
PRIVATE_PEM = RSA_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_file(folder: Path, key: Any, encoding: Encoding = Encoding.PEM) -> str:
    """Write the public part of a key, and return the path."""
    path = folder / "public.key"
    path.write_bytes(key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo))
    return str(path)


def secret_file(folder: Path, content: bytes = SECRET) -> str:
    path = folder / "secret.key"
    path.write_bytes(content)
    return str(path)


def key_set(folder: Path, **keys: Any) -> str:
    """Write the public parts of keys, by `kid`, as a JSON Web Key Set, and return the path."""
    entries = []
    for name, key in keys.items():
        kind: Any = (
            jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        )
        entries.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"})
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": entries}))
    return str(path)


def token(
    key: Any = SECRET, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **claims: Any
) -> bytes:
    """Return a signed token of role `app`, with other claims."""
    return jwt.encode({"sub": "app", **claims}, key, algorithm, headers=headers).encode()


@asynccontextmanager
async def client_of(world: Regions, role: str) -> AsyncIterator[RawClient]:
    """Connect a client with a token of this role."""
    async with raw_client(world, handshake=False) as client:
        client.greet("token", token(sub=role))
        assert (await client.next()).type == pb.BaseCommand.CONNECTED
        yield client
