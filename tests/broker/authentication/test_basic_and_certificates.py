"""Basic authentication with an htpasswd file, and roles of client certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from passlib.context import CryptContext

from emulator.broker.authentication.basic import DATA_BYTES_MAX, BasicProvider
from emulator.broker.authentication.certificates import CertificateProvider
from emulator.broker.authentication.credentials import Credential, Refused

APR1 = "$apr1$foobarmq$kuSZlLgOITksCkRgl57ie/"
"""`superpass`, as `htpasswd -nbm` writes it."""


def users(folder: Path, text: str) -> Path:
    path = folder / "users.htpasswd"
    path.write_text(text)
    return path


def reason(provider: Any, data: bytes, certificate: Any = None) -> str:
    with pytest.raises(Refused) as refused:
        provider.verify(data, certificate, 0)
    return refused.value.reason


@pytest.mark.parametrize("scheme", ["apr_md5_crypt", "sha256_crypt", "sha512_crypt", "md5_crypt"])
def test_name_and_password_prove_the_role(tmp_path: Path, scheme: str) -> None:
    rounds = {f"{scheme}__rounds": 1_000} if scheme.startswith("sha") else {}
    hashed = CryptContext([scheme], **rounds).hash("secret:with:colons")
    provider = BasicProvider(users(tmp_path, f"# users\n\nana:{hashed}\n"))
    for _ in range(2):
        assert provider.verify(b"ana:secret:with:colons", None, 0) == Credential("ana")
    assert reason(provider, b"ana:secret") == "credentials"
    assert reason(provider, b"ana:secret:with:colons ") == "credentials"
    assert reason(provider, b"bob:secret:with:colons") == "credentials"
    assert reason(provider, b":secret:with:colons") == "credentials"


def test_a_hash_is_no_password(tmp_path: Path) -> None:
    provider = BasicProvider(users(tmp_path, f"ana:{APR1}"))
    assert reason(provider, f"ana:{APR1}".encode()) == "credentials"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "malformed"),
        (b"ana", "malformed"),
        (b"\xff:\xff", "malformed"),
        (b"ana:" + b"x" * DATA_BYTES_MAX, "malformed"),
        (b"ana:" + b"x" * 1_000_000, "malformed"),
        (b"ana:nul\0nul", "credentials"),
        (b"ana:", "credentials"),
    ],
    ids=range(7),
)
def test_credentials_that_are_none(tmp_path: Path, data: bytes, expected: str) -> None:
    assert reason(BasicProvider(users(tmp_path, f"ana:{APR1}")), data) == expected


@pytest.mark.parametrize(
    "line", ["ana", "ana:", "ana:plain text", f":{APR1}", "ana:$2y$05$c4WoMPo3SXsafkva.HHa6u"]
)
def test_a_file_with_a_line_that_is_no_user(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match="line 2: must be NAME:HASH") as refused:
        BasicProvider(users(tmp_path, f"bob:{APR1}\n{line}\n"))
    assert line[5:] not in str(refused.value) or len(line) < 6


def test_a_hash_that_would_block_the_region_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 1: a hash may have 20000 rounds"):
        BasicProvider(users(tmp_path, "ana:$5$rounds=999999999$abc$" + "A" * 43))


def subject(*names: str) -> dict[str, Any]:
    """Return a certificate as `getpeercert` does."""
    return {"subject": ((("organizationName", "x"),), *((("commonName", name),) for name in names))}


def test_the_common_name_is_the_role() -> None:
    assert CertificateProvider().verify(b"ignored", subject("app"), 0) == Credential("app")


@pytest.mark.parametrize(
    "certificate",
    [None, {}, {"subject": ()}, subject(), subject("a", "b")],
    ids=range(5),
)
def test_certificates_without_one_name(certificate: Any) -> None:
    assert reason(CertificateProvider(), b"app", certificate) == "certificate"


def test_a_name_that_is_no_role() -> None:
    assert reason(CertificateProvider(), b"", subject("")) == "role"
    assert reason(CertificateProvider(), b"", subject("a\nb")) == "role"
