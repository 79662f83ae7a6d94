"""Basic authentication with the users of an htpasswd file, as by Pulsar's AuthenticationProviderBasic."""

from __future__ import annotations

import hmac
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from passlib.context import CryptContext

from emulator.broker.authentication.credentials import Credential, Refused, checked_role

DATA_BYTES_MAX: Final = 4_096
"""Maximum size of name and password; every attempt hashes the password."""
SCHEMES: Final = ("apr_md5_crypt", "sha512_crypt", "sha256_crypt", "md5_crypt", "des_crypt")
"""Hashes that `htpasswd` and crypt(3) write and Pulsar reads."""
ROUNDS_MAX: Final = 20_000
"""Maximum of rounds of a hash, which takes about 50 ms: the region serves no other client meanwhile."""


class BasicProvider:
    """Verifies names and passwords."""

    def __init__(self, path: Path) -> None:
        """Read the users. Raises OSError, or ValueError for a line without a hash."""
        self._hashes = CryptContext(schemes=list(SCHEMES))
        self._users = _read_users(path, self._hashes)
        self._verified: dict[str, bytes] = {}
        """User -> digest of the password that was verified last: HTTP clients send it with every request."""

    def verify(self, data: bytes, certificate: Any, now_ms: int) -> Credential:
        """Return the role of `name:password`: the name. Refused for any other."""
        if len(data) > DATA_BYTES_MAX:
            raise Refused("malformed", f"name and password may have {DATA_BYTES_MAX} bytes at most")
        try:
            name, separator, password = data.decode().partition(":")
        except UnicodeDecodeError:
            separator = ""
        if not separator:
            raise Refused("malformed", "basic credentials must be NAME:PASSWORD")
        if not self._is_password(name, password):
            raise Refused("credentials", "unknown user or wrong password")
        return Credential(checked_role(name, "the htpasswd file"))

    def _is_password(self, name: str, password: str) -> bool:
        hashed, digest = self._users.get(name), sha256(password.encode()).digest()
        if hashed is None:
            self._hashes.dummy_verify()  # the time of a response does not reveal which users exist
            return False
        if hmac.compare_digest(self._verified.get(name, b""), digest):
            return True
        try:
            is_right = bool(self._hashes.verify(password, hashed))
        except (ValueError, TypeError):  # a password that the hash does not allow, such as one with NUL
            is_right = False
        if is_right:
            self._verified[name] = digest
        return is_right


def _read_users(path: Path, hashes: CryptContext) -> dict[str, str]:
    users: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, hashed = line.strip().partition(":")
        if not name or not hashes.identify(hashed):
            raise ValueError(
                f"{path}, line {number}: must be NAME:HASH, with a hash of `htpasswd -m`, `-2`, `-5` or `-d`"
            )
        if getattr(hashes.handler(hashes.identify(hashed)).from_string(hashed), "rounds", 0) > ROUNDS_MAX:
            raise ValueError(f"{path}, line {number}: a hash may have {ROUNDS_MAX} rounds at most")
        users[name] = hashed
    return users
