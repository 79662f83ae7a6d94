"""Authentication by tokens (JWT), as by Pulsar's AuthenticationProviderToken and, with a key set, its OpenID one.

PyJWT verifies the signature. The times of a token are compared with the wall clock of the region, so that a clock that
`geoemu skew` sets wrong has the effect that it has in production.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import jwt

from emulator.broker.authentication.credentials import Credential, Refused, checked_role
from emulator.config.security import TokenConfig
from emulator.config.token_keys import VerificationKey, public_keys, secret_keys

TOKEN_BYTES_MAX: Final = 32_768
_NO_CLAIM_CHECKS: Final[Any] = {
    f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}
"""They are checked here, against the region's clock, and as Pulsar checks them."""


class TokenProvider:
    """Verifies tokens with the keys of one file."""

    def __init__(self, config: TokenConfig) -> None:
        """Read the keys. Raises OSError or ValueError if that is impossible."""
        self._config = config
        self._path = Path(config.secret_key or config.public_key)
        self._read_ns = 0
        self._keys: list[VerificationKey] = []
        self._read_keys()

    def verify(self, data: bytes, certificate: Any, now_ms: int) -> Credential:
        """Return the role of a token, `data`. Refused for any other."""
        if len(data) > TOKEN_BYTES_MAX:
            raise Refused("malformed", f"a token may have {TOKEN_BYTES_MAX} bytes at most")
        claims = self._claims(data.strip())  # clients send files as they are, with the end of the line
        self._check_times(claims, now_ms)
        self._check_origin(claims)
        expires = claims.get("exp")
        return Credential(self._role(claims), None if expires is None else int(expires * 1000))

    # Signature.

    def _claims(self, token: bytes) -> dict[str, Any]:
        """Return the claims of a token with a valid signature."""
        try:
            header: dict[str, Any] = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as problem:
            raise Refused("malformed", "the token is no JWT") from problem
        for key in self._candidates(header):
            claims = _verified(token, key)
            if claims is not None:
                return claims
        raise Refused("signature", "no key of this region verifies the token")

    def _candidates(self, header: dict[str, Any]) -> list[VerificationKey]:
        """Return the keys that may verify a token with this header; `kid` only selects one of the set."""
        found = self._select(header)
        if not found and self._path_changed():
            self._read_keys()
            found = self._select(header)
        return found

    def _select(self, header: dict[str, Any]) -> list[VerificationKey]:
        name, algorithm = header.get("kid"), header.get("alg")
        return [
            one
            for one in self._keys
            if algorithm in one.algorithms and (not one.key_id or name is None or name == one.key_id)
        ]

    def _path_changed(self) -> bool:
        """Whether the issuer has written other keys since the file was read."""
        try:
            return self._path.stat().st_mtime_ns != self._read_ns
        except OSError:
            return False

    def _read_keys(self) -> None:
        config, is_first = self._config, not self._keys
        try:
            read_ns = self._path.stat().st_mtime_ns
            read = secret_keys if config.secret_key else public_keys
            self._keys, self._read_ns = read(self._path, config.algorithms), read_ns
        except (OSError, ValueError):
            if is_first:
                raise

    # Claims.

    def _check_times(self, claims: dict[str, Any], now_ms: int) -> None:
        for name in ("exp", "nbf"):
            if not _is_time(claims.get(name, 0)):
                raise Refused("malformed", f"the claim {name} of the token is no time")
        if "exp" in claims and now_ms >= claims["exp"] * 1000:
            raise Refused("expired", "the token has expired")
        if "nbf" in claims and now_ms < claims["nbf"] * 1000:
            raise Refused("not-yet-valid", "the token is not valid yet")

    def _check_origin(self, claims: dict[str, Any]) -> None:
        config, audience = self._config, claims.get("aud")
        if config.audience and config.audience not in (
            audience if isinstance(audience, list) else [audience]
        ):
            raise Refused("audience", "the token is not for the audience of this region")
        if config.issuer and claims.get("iss") != config.issuer:
            raise Refused("issuer", "the token is not by the issuer that this region trusts")

    def _role(self, claims: dict[str, Any]) -> str:
        """Return the role: the claim, or its first element if it is a list, as in Pulsar."""
        role = claims.get(self._config.role_claim)
        if isinstance(role, list):
            role = role[0] if role else None
        return checked_role(role, f"the claim {self._config.role_claim} of the token")


def _verified(token: bytes, key: VerificationKey) -> dict[str, Any] | None:
    try:
        claims: dict[str, Any] = jwt.decode(
            token, key.key, algorithms=list(key.algorithms), options=_NO_CLAIM_CHECKS
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return None
    return claims


def _is_time(value: Any) -> bool:
    """Whether a claim is a number of seconds of this millennium or before."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
