"""Tokens: accepted keys, refused claims, and attacks on the choice of the algorithm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from emulator.broker.authentication.credentials import Credential, Refused
from emulator.broker.authentication.token import TOKEN_BYTES_MAX, TokenProvider
from emulator.config.security import TokenConfig

from .tokens import (
    EC_KEY,
    NOW,
    NOW_MS,
    PRIVATE_PEM,
    PUBLIC_PEM,
    RSA_KEY,
    SECRET,
    key_set,
    public_file,
    secret_file,
    token,
)


@pytest.fixture
def secret(tmp_path: Path) -> TokenProvider:
    return TokenProvider(TokenConfig(secret_key=secret_file(tmp_path)))


def verify(provider: TokenProvider, data: bytes) -> Credential:
    return provider.verify(data, None, NOW_MS)


def reason(provider: TokenProvider, data: bytes) -> str:
    with pytest.raises(Refused) as refused:
        verify(provider, data)
    assert data.decode("latin-1")[:40] not in str(refused.value) or not data
    return refused.value.reason


def encode(part: Any) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def forged(header: dict[str, Any], secret: bytes, claims: dict[str, Any] | None = None) -> bytes:
    """Return a token with any header, signed by HMAC-SHA256 with `secret`; PyJWT refuses to write some of them."""
    signed = f"{encode(header)}.{encode(claims or {'sub': 'admin'})}".encode()
    return signed + b"." + encode(hmac.digest(secret, signed, hashlib.sha256)).encode()


def test_a_secret_may_be_bytes_or_base64(tmp_path: Path, secret: TokenProvider) -> None:
    assert verify(secret, token()) == Credential("app")
    assert verify(secret, token() + b"\n") == Credential("app")
    text = base64.b64encode(SECRET) + b"\n"
    encoded = TokenProvider(TokenConfig(secret_key=secret_file(tmp_path, text)))
    assert verify(encoded, token()) == Credential("app")
    # Pulsar reads the bytes of a file as they are.
    assert verify(encoded, token(text)) == Credential("app")


@pytest.mark.parametrize(("key", "algorithm"), [(RSA_KEY, "RS256"), (EC_KEY, "ES256")])
@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_public_keys(tmp_path: Path, key: Any, algorithm: str, encoding: Encoding) -> None:
    provider = TokenProvider(TokenConfig(public_key=public_file(tmp_path, key, encoding)))
    assert verify(provider, token(key, algorithm)) == Credential("app")
    assert reason(provider, token()) == "signature"


def test_a_key_set_selects_by_kid(tmp_path: Path) -> None:
    provider = TokenProvider(TokenConfig(public_key=key_set(tmp_path, one=RSA_KEY, two=EC_KEY)))
    assert verify(provider, token(RSA_KEY, "RS256", {"kid": "one"})).role == "app"
    assert verify(provider, token(EC_KEY, "ES256", {"kid": "two"})).role == "app"
    assert reason(provider, token(EC_KEY, "ES256", {"kid": "one"})) == "signature"
    assert reason(provider, token(RSA_KEY, "RS256", {"kid": "../../dev/null"})) == "signature"


def test_a_rotated_key_set_is_read_again(tmp_path: Path) -> None:
    path = key_set(tmp_path, old=RSA_KEY)
    provider = TokenProvider(TokenConfig(public_key=path))
    rotated = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    fresh = token(rotated, "RS256", {"kid": "new"})
    assert reason(provider, fresh) == "signature"
    key_set(tmp_path, new=rotated)
    os.utime(path, ns=(1, 1))
    assert verify(provider, fresh).role == "app"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"exp": NOW}, "expired"),
        ({"exp": NOW - 1}, "expired"),
        ({"nbf": NOW + 1}, "not-yet-valid"),
        ({"exp": "tomorrow"}, "malformed"),
        ({"exp": True}, "malformed"),
        ({"exp": 1e300}, "malformed"),
        ({"exp": float("nan")}, "malformed"),
        ({"nbf": None}, "malformed"),
        ({"sub": ""}, "role"),
        ({"sub": 7}, "role"),
        ({"sub": []}, "role"),
        ({"sub": "line\nbreak"}, "role"),
        ({"sub": "x" * 1_001}, "role"),
    ],
    ids=str,
)
def test_claims_that_are_refused(secret: TokenProvider, claims: dict[str, Any], expected: str) -> None:
    assert (
        reason(secret, forged({"alg": "HS256", "typ": "JWT"}, SECRET, {"sub": "app", **claims})) == expected
    )


def test_expiry_is_that_of_the_token(secret: TokenProvider) -> None:
    credential = verify(secret, token(exp=NOW + 5, nbf=NOW))
    assert credential.expires_ms == NOW_MS + 5_000
    assert not credential.is_expired(NOW_MS + 4_999)
    assert credential.is_expired(NOW_MS + 5_000)


def test_audience_issuer_and_role_claim(tmp_path: Path) -> None:
    provider = TokenProvider(
        TokenConfig(secret_key=secret_file(tmp_path), audience="pulsar", issuer="us", role_claim="client")
    )
    assert verify(provider, token(aud=["other", "pulsar"], iss="us", client="app")).role == "app"
    assert verify(provider, token(aud="pulsar", iss="us", client=["app", "other"])).role == "app"
    assert reason(provider, token(aud="pulsars", iss="us", client="app")) == "audience"
    assert reason(provider, token(iss="us", client="app")) == "audience"
    assert reason(provider, token(aud="pulsar", iss="them", client="app")) == "issuer"
    assert reason(provider, token(aud="pulsar", iss="us")) == "role"


# Attacks.


@pytest.mark.parametrize("name", ["HS256", "HS384", "hs256"])
def test_a_public_key_is_no_secret(tmp_path: Path, name: str) -> None:
    provider = TokenProvider(TokenConfig(public_key=public_file(tmp_path, RSA_KEY)))
    assert reason(provider, forged({"alg": name}, PUBLIC_PEM)) == "signature"
    assert reason(provider, forged({"alg": "RS256"}, PUBLIC_PEM)) == "signature"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", None, 7, ["HS256"], {"a": 1}])
def test_no_algorithm_is_refused(secret: TokenProvider, name: Any) -> None:
    unsigned = f"{encode({'alg': name})}.{encode({'sub': 'admin'})}.".encode()
    assert reason(secret, unsigned) in ("malformed", "signature")
    assert reason(secret, forged({"alg": name}, SECRET)) in ("malformed", "signature")


@pytest.mark.parametrize(
    "header",
    [
        {"jku": "http://127.0.0.1:1/keys"},
        {"x5u": "file:///dev/null"},
        {"kid": "' OR 1=1 --"},
        {"kid": {"a": 1}},
        {"kid": 7},
        {"crit": ["unknown"], "unknown": 1},
        {"b64": False, "crit": ["b64"]},
        {"jwk": {"kty": "oct", "k": encode(b"x" * 32)}},
    ],
    ids=str,
)
def test_a_header_selects_no_key_of_its_own(secret: TokenProvider, header: dict[str, Any]) -> None:
    assert reason(secret, forged({"alg": "HS256", **header}, b"x" * 32)) in ("malformed", "signature")


def test_another_curve_or_secret_is_refused(tmp_path: Path, secret: TokenProvider) -> None:
    provider = TokenProvider(TokenConfig(public_key=public_file(tmp_path, EC_KEY)))
    other = ec.generate_private_key(ec.SECP384R1())
    assert reason(provider, token(other, "ES384")) == "signature"
    assert reason(secret, token(b"another secret of 32 bytes......")) == "signature"


def test_a_large_token_is_refused_before_it_is_parsed(secret: TokenProvider) -> None:
    assert reason(secret, token(filler="x" * TOKEN_BYTES_MAX)) == "malformed"
    assert reason(secret, b"." * 10_000_000) == "malformed"
    assert reason(secret, f"{encode(b'[' * 20_000)}.e30.e30".encode()) == "malformed"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> TokenProvider:
    return TokenProvider(TokenConfig(secret_key=secret_file(tmp_path_factory.mktemp("keys"))))


@given(st.binary(max_size=200) | st.lists(st.binary(max_size=60), min_size=3, max_size=5).map(b".".join))
def test_garbage_is_refused(shared: TokenProvider, data: bytes) -> None:
    with pytest.raises(Refused):
        verify(shared, data)


@given(st.data())
def test_no_changed_token_is_accepted(shared: TokenProvider, data: st.DataObject) -> None:
    """A token with another character is refused, or another encoding of the same bytes (unused bits of base64)."""
    good = token(exp=NOW + 60).decode()
    at = data.draw(st.integers(0, len(good) - 1))
    changed = good[:at] + data.draw(st.sampled_from("AZaz09-_.=+/")) + good[at + 1 :]
    try:
        credential = verify(shared, changed.encode())
    except Refused:
        assert changed != good
    else:
        assert credential == Credential("app", NOW_MS + 60_000)


# Files.


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"short", "needs 32 bytes"), (b"", "needs 32 bytes"), (b"A" * 2_000_000, "1048576 bytes at most")],
    ids=["short", "empty", "huge"],
)
def test_files_that_are_no_secret(tmp_path: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TokenProvider(TokenConfig(secret_key=secret_file(tmp_path, content)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        PRIVATE_PEM,
        b"{}",
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        b'{"keys": [7]}',
        b'{"keys": [{"kty": "RSA"}]}',
        b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "d": "AQAB"}]}',
        b"{" * 100_000,
    ],
    ids=range(10),
)
def test_files_that_are_no_public_key(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=str(path)):
        TokenProvider(TokenConfig(public_key=str(path)))


def test_a_key_that_verifies_no_accepted_algorithm(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="accepted are RS256"):
        TokenProvider(TokenConfig(secret_key=secret_file(tmp_path), algorithms=("RS256",)))
    with pytest.raises(FileNotFoundError):
        TokenProvider(TokenConfig(secret_key=str(tmp_path / "missing")))
