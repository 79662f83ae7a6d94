"""`bin/pulsar tokens`: its keys and tokens are those that a region verifies."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import jwt
import pytest

from emulator.broker.standalone.program import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["tokens", *arguments]) == 0
    return capsys.readouterr().out.strip()


def test_a_secret_key_in_a_file_and_a_token_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "secret.key"
    assert run(capsys, "create-secret-key", "--output", str(path)) == ""
    assert len(path.read_bytes()) == 32
    for value in (
        str(path),
        f"file://{path}",
        f"data:;base64,{base64.b64encode(path.read_bytes()).decode()}",
    ):
        made = run(capsys, "create", "--secret-key", value, "--subject", "test-user")
        assert jwt.decode(made, path.read_bytes(), ["HS256"]) == {"sub": "test-user"}


def test_a_printed_key_is_base64_and_a_token_may_expire(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run(capsys, "create-secret-key")
    made = run(capsys, "create", "-sk", printed, "-s", "app", "-e", "3600s")
    claims = jwt.decode(made, base64.b64decode(printed), ["HS256"])
    assert 0 < claims["exp"] - time.time() <= 3_600


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_key_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: str) -> None:
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    private, public = tmp_path / "private.der", tmp_path / "public.der"
    pair = ("--output-private-key", str(private), "--output-public-key", str(public))
    assert run(capsys, "create-key-pair", "-a", algorithm, *pair) == ""
    made = run(capsys, "create", "-pk", f"file://{private}", "-s", "app", "-a", algorithm)
    key = load_der_public_key(public.read_bytes())
    assert jwt.decode(made, key, [algorithm]) == {"sub": "app"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["create", "-sk", "/missing.key", "-s", "a"], "must be a path, file:///path, data:;base64"),
        (["create", "-sk", "c2hvcnQ=", "-s", "a"], "a secret key needs 32 bytes at least"),
        (["create", "-sk", "file:///", "-s", "a"], "Is a directory"),
        (["create", "-pk", "c2hvcnQ=", "-s", "a"], "must be a private key (PEM or DER)"),
        (
            ["create", "-sk", "eA==", "-s", "a", "-e", "soon"],
            "--expiry-time=soon: must be a duration above 0",
        ),
        (["create-secret-key", "-o", "/missing/key"], "No such file or directory"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main(["tokens", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert problem in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["revoke"], ["create", "-s", "a"], ["create", "-sk", "a"]])
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tokens", *arguments])
    assert end.value.code == 2
    assert "usage: pulsar tokens" in capsys.readouterr().err
