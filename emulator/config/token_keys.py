"""Keys that verify tokens: a secret, a public key (PEM or DER), or a JSON Web Key Set.

The type of a key decides which algorithms it may verify, never the header of a token: a public key is no secret of
HS256, whatever a token claims.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from emulator.config.tokens import CURVE_ALGORITHMS, read_key_file, read_secret

SECRET_ALGORITHMS: Final = ("HS256", "HS384", "HS512")
RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
DEFAULT_ALGORITHMS: Final = ("HS256", "RS256", "ES256")


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key, and the algorithms that it verifies."""

    key: Any
    algorithms: tuple[str, ...]
    key_id: str = ""
    """Name in a key set; empty: it has none."""


def secret_keys(path: Path, accepted: Iterable[str] = ()) -> list[VerificationKey]:
    """Return the keys of a file with a secret. Raises OSError or ValueError."""
    return [_key(path, secret, SECRET_ALGORITHMS, accepted) for secret in read_secret(path)]


def public_keys(path: Path, accepted: Iterable[str] = ()) -> list[VerificationKey]:
    """Return the keys of a file with a public key or a key set. Raises OSError or ValueError."""
    raw = read_key_file(path)
    if raw.lstrip().startswith(b"{"):
        return _key_set(path, raw, accepted)
    load = load_pem_public_key if b"-----BEGIN" in raw else load_der_public_key
    try:
        key = load(raw)
    except Exception as problem:  # the library raises several types for damaged keys
        raise ValueError(f"{path}: neither a public key (PEM or DER) nor a JSON Web Key Set") from problem
    return [_key(path, key, _algorithms_of(path, key), accepted)]


def _key_set(path: Path, raw: bytes, accepted: Iterable[str]) -> list[VerificationKey]:
    try:
        entries = json.loads(raw)["keys"]
        found = [one for one in entries if one.get("use", "sig") == "sig" and one.get("kty") in ("RSA", "EC")]
        keys = [_key_of_set(path, one, accepted) for one in found]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, jwt.PyJWTError) as problem:
        raise ValueError(f"{path}: not a valid JSON Web Key Set") from problem
    names = [one.key_id for one in keys]
    if not keys or len(set(names)) < len(names):
        raise ValueError(f"{path}: a JSON Web Key Set needs public keys (RSA or EC) with different `kid`")
    return keys


def _key_of_set(path: Path, entry: Mapping[str, Any], accepted: Iterable[str]) -> VerificationKey:
    if "d" in entry:
        raise ValueError(f"{path}: contains a private key")
    key_type: Any = jwt.algorithms.RSAAlgorithm if entry["kty"] == "RSA" else jwt.algorithms.ECAlgorithm
    key = key_type.from_jwk(dict(entry))
    possible = _algorithms_of(path, key)
    declared = entry.get("alg")
    algorithms = possible if declared is None else tuple(one for one in possible if one == declared)
    return _key(path, key, algorithms, accepted, str(entry.get("kid", "")))


def _algorithms_of(path: Path, key: Any) -> tuple[str, ...]:
    if isinstance(key, RSAPublicKey):
        return RSA_ALGORITHMS
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in CURVE_ALGORITHMS:
        return (CURVE_ALGORITHMS[key.curve.name],)
    raise ValueError(f"{path}: a key of tokens must be RSA, or EC on the curve P-256, P-384 or P-521")


def _key(
    path: Path, key: Any, possible: tuple[str, ...], accepted: Iterable[str], key_id: str = ""
) -> VerificationKey:
    accepted = tuple(accepted)
    chosen = tuple(one for one in possible if one in (accepted or DEFAULT_ALGORITHMS))
    if not chosen:
        wanted = ", ".join(accepted or DEFAULT_ALGORITHMS)
        raise ValueError(
            f"{path}: this key verifies {', '.join(possible) or 'nothing'}; accepted are {wanted}"
        )
    return VerificationKey(key, chosen, key_id)
