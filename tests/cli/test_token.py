"""`geoemu token`: tokens that a region accepts, and refusals without a usable key."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from emulator.broker.authentication.credentials import Credential, Refused
from emulator.broker.authentication.token import TokenProvider
from emulator.config.security import TokenConfig
from tests.broker.authentication.tokens import PRIVATE_PEM, RSA_KEY, public_file
from tests.cli.test_cli import geoemu
from tests.config.topology_files import write_topology


def issued(folder: Path, *arguments: str) -> bytes:
    done = geoemu("token", *arguments, folder=folder)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.strip().encode()


def test_a_secret_is_created_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    key = tmp_path / "keys" / "token.key"
    first = issued(tmp_path, "app", "--secret-key", str(key), "--create")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    again = issued(tmp_path, "app", "--secret-key", str(key), "--create", "--expires", "1h")
    provider, now_ms = TokenProvider(TokenConfig(secret_key=str(key))), time.time_ns() // 1_000_000
    assert provider.verify(first, None, now_ms) == Credential("app")
    assert provider.verify(again, None, now_ms).role == "app"
    with pytest.raises(Refused, match="expired"):
        provider.verify(again, None, now_ms + 3_600_000)


def test_the_first_token_creates_the_key_that_the_topology_names(tmp_path: Path) -> None:
    """Without the key the topology cannot be read, so the key has to be created first."""
    text = """
        clusters: [americas]
        security:
          authentication:
            token: {secret_key: token.key, audience: us}
        """
    write_topology(tmp_path, text)
    first = issued(tmp_path, "app", "--secret-key", "token.key", "--create")
    provider = TokenProvider(TokenConfig(secret_key=str(tmp_path / "token.key"), audience="us"))
    assert provider.verify(first, None, 0) == Credential("app")
    assert provider.verify(issued(tmp_path, "ana"), None, 0) == Credential("ana")


def test_the_topology_may_name_an_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_topology(
        tmp_path,
        """
        clusters: [americas]
        security:
          authentication:
            token: {secret_key: "env:TOKEN_KEY"}
        """,
    )
    for content, problem in ((None, "is not set"), ("short", "a secret key needs 32 bytes")):
        if content is not None:
            monkeypatch.setenv("TOKEN_KEY", content)
        done = geoemu("token", "app", folder=tmp_path)
        assert done.returncode == 2
        assert problem in done.stderr
        assert "env:TOKEN_KEY" in done.stderr
    (tmp_path / "token.key").write_text("k" * 40)
    monkeypatch.setenv("TOKEN_KEY", "k" * 40)
    provider = TokenProvider(TokenConfig(secret_key=str(tmp_path / "token.key")))
    assert provider.verify(issued(tmp_path, "app"), None, 0) == Credential("app")


def test_private_keys(tmp_path: Path) -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    for key, content in (
        (RSA_KEY, PRIVATE_PEM),
        (curve, curve.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())),
    ):
        (tmp_path / "private.key").write_bytes(content)
        data = issued(tmp_path, "app", "--private-key", "private.key")
        provider = TokenProvider(TokenConfig(public_key=public_file(tmp_path, key)))
        assert provider.verify(data, None, 0) == Credential("app")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("app",), "the topology has no security.authentication.token"),
        (("app", "--secret-key", "missing"), "No such file"),
        (("app", "--secret-key", "short"), "a secret key needs 32 bytes"),
        (("app", "--private-key", "short"), "must be a private key (PEM or DER)"),
        (("app", "--private-key", "short", "--secret-key", "short"), "not both"),
        (("app", "--create"), "needs --secret-key"),
        (("app", "--secret-key", "short", "--expires", "1"), "must be a duration"),
        (("app", "--secret-key", "short", "--expires", "0h"), "must be a duration"),
        (("", "--secret-key", "short"), "must be a printable name"),
    ],
    ids=range(9),
)
def test_what_is_refused(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    (tmp_path / "short").write_text("not a key")
    done = geoemu("token", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in " ".join(done.stderr.replace("│", " ").split())
    assert "not a key" not in done.stderr
