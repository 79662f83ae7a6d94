"""Secret keys and tokens (JWT), in the formats of `pulsar tokens create-secret-key` and `pulsar tokens create`."""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from emulator.config.security import TokenConfig

SECRET_BYTES_MIN: Final = 32
"""Minimum size of a secret of HS256, as in RFC 7518 and Pulsar's library."""
KEY_FILE_BYTES_MAX: Final = 1_048_576
CURVE_ALGORITHMS: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


def read_key_file(path: Path) -> bytes:
    """Return the content of a file with keys. Raises OSError, or ValueError for one that is too large."""
    with path.open("rb") as file:
        raw = file.read(KEY_FILE_BYTES_MAX + 1)
    if len(raw) > KEY_FILE_BYTES_MAX:
        raise ValueError(f"{path}: a key file may have {KEY_FILE_BYTES_MAX} bytes at most")
    return raw


def read_secret(path: Path) -> tuple[bytes, ...]:
    """Return the secrets that a file means: its bytes, as `pulsar tokens create-secret-key` writes them and Pulsar
    reads `file:`, and the bytes that it encodes if its content is base64 (`create-secret-key --base64`, which Pulsar
    decodes from `data:;base64,`). Raises OSError, or ValueError for one that is too short."""
    return secrets_in(read_key_file(path), str(path))


def secrets_in(raw: bytes, source: str) -> tuple[bytes, ...]:
    """Return the secrets that the content of a file, or of an environment variable, means. Raises ValueError, which
    names the source, for one that is too short."""
    found = [raw] if len(raw) >= SECRET_BYTES_MIN else []
    try:
        decoded = base64.b64decode(b"".join(raw.split()), validate=True)
    except binascii.Error:
        decoded = b""
    if len(decoded) >= SECRET_BYTES_MIN:
        found.append(decoded)
    if not found:
        raise ValueError(
            f"{source}: a secret key needs {SECRET_BYTES_MIN} bytes at least, this one has {len(raw)}"
        )
    return tuple(found)


def create_secret(path: Path) -> None:
    """Write a new secret key that only its owner can read. Raises OSError, also if the file exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(SECRET_BYTES_MIN))


def claims_of(role: str, config: TokenConfig, expires_seconds: float | None) -> dict[str, Any]:
    """Return the claims of a token that a region with this configuration accepts for a role."""
    claims: dict[str, Any] = {config.role_claim: role}
    if expires_seconds is not None:
        claims["exp"] = int(time.time() + expires_seconds)
    if config.audience:
        claims["aud"] = config.audience
    if config.issuer:
        claims["iss"] = config.issuer
    return claims


def signed_by_secret(claims: Mapping[str, Any], secret: bytes) -> str:
    """Return a token (HS256)."""
    import jwt

    return str(jwt.encode(dict(claims), secret, "HS256"))


def signed_by_private_key(claims: Mapping[str, Any], path: Path) -> str:
    """Return a token (RS256, or ES256 and its relatives). Raises OSError or ValueError if the file is no such key."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    raw = read_key_file(path)
    load = load_pem_private_key if b"-----BEGIN" in raw else load_der_private_key
    try:
        key: Any = load(raw, None)
    except Exception as problem:  # the library raises several types for damaged keys
        raise ValueError(f"{path}: must be a private key (PEM or DER) without a password") from problem
    if isinstance(key, RSAPrivateKey):
        return str(jwt.encode(dict(claims), key, "RS256"))
    if isinstance(key, EllipticCurvePrivateKey) and key.curve.name in CURVE_ALGORITHMS:
        return str(jwt.encode(dict(claims), key, CURVE_ALGORITHMS[key.curve.name]))
    raise ValueError(f"{path}: a key of tokens must be RSA, or EC on the curve P-256, P-384 or P-521")
