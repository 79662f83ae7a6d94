"""The start of a region: unreadable keys end it, and libraries are imported only if they are configured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.config.region import LogConfig, RegionConfig
from emulator.config.security import AuthenticationConfig, SecurityConfig, TokenConfig

HEAVY = ["cryptography", "jwt", "passlib"]


def test_a_region_without_security_imports_no_library_for_it() -> None:
    program = f"import sys, emulator.broker.main; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_certificates_need_no_library() -> None:
    program = (
        "import sys\n"
        "from emulator.broker.authentication.providers import providers_of\n"
        "from emulator.config.security import AuthenticationConfig\n"
        "print(*providers_of(AuthenticationConfig(tls=True)))\n"
        f"assert not {set(HEAVY)!r} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tls"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "No such file"), ("short", "a secret key needs 32 bytes")],
    ids=["missing", "short"],
)
def test_a_region_without_its_key_does_not_start(tmp_path: Path, content: str | None, sentence: str) -> None:
    key = tmp_path / "token.key"
    if content is not None:
        key.write_text(content)
    authentication = AuthenticationConfig(token=TokenConfig(secret_key=str(key)))
    config = RegionConfig(
        region="us",
        cluster="test",
        log=LogConfig(path=str(tmp_path / "log.sqlite")),
        security=SecurityConfig(authentication=authentication),
    )
    (tmp_path / "region.json").write_text(config.to_json())
    done = subprocess.run(
        [sys.executable, "-m", "emulator.broker", str(tmp_path / "region.json")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert sentence in done.stderr
    assert str(key) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['jwt'] = None\n"
        "from emulator.broker.authentication.providers import providers_of\n"
        "from emulator.config.security import *\n"
        "try:\n"
        "    providers_of(AuthenticationConfig(token=TokenConfig(secret_key='x')))\n"
        "except ValueError as problem:\n"
        "    print(problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "authentication needs the package jwt: pip install 'geoemu[security]'"


def test_security_survives_region_json(tmp_path: Path) -> None:
    token = TokenConfig(secret_key="k", algorithms=("HS256",), audience="a")
    security = SecurityConfig(authentication=AuthenticationConfig(token, "b", True, "guest", 0.5, "r"))
    config = RegionConfig(region="us", cluster="test", security=security)
    assert RegionConfig.from_json(config.to_json()) == config
    assert json.loads(config.to_json())["security"]["authentication"]["token"]["algorithms"] == ["HS256"]
