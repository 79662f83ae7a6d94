"""The packages of the images: the extras of pyproject and their requirements, as requirements.lock pins them."""

from __future__ import annotations

import re
import runpy
from importlib.metadata import requires
from typing import Any

import pytest

from .containers import ROOT

LOCK: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "lock.py"))


def wanted(*extras: str) -> list[str]:
    names: list[str] = LOCK["wanted"](extras, LOCK["read_lock"]())
    return names


def test_a_region_has_little() -> None:
    assert wanted("kafka") == ["avro", "crc32c", "h11", "kafka-python", "protobuf"]


def test_security_adds_maintained_cryptography_only() -> None:
    assert set(wanted("kafka", "security")) - set(wanted("kafka")) == {
        "cffi",
        "cryptography",
        "libpass",
        "pycparser",
        "pyjwt",
    }


@pytest.mark.parametrize("extras", [("kafka",), ("kafka", "security"), ("kafka", "spark")], ids="-".join)
def test_nothing_is_missing(extras: tuple[str, ...]) -> None:
    """Every requirement of the installed packages is included, extras aside."""
    names = set(wanted(*extras))
    needs = {
        re.match(r"[\w.-]+", need)[0].lower()  # type: ignore[index]
        for name in names
        for need in requires(name) or ()
        if ";" not in need
    }
    assert needs <= names


def test_a_package_that_is_not_pinned_is_refused() -> None:
    locked = LOCK["read_lock"]()
    del locked["pyspark"]
    with pytest.raises(LOCK["NotPinned"], match=r"requirements\.lock has no pyspark"):
        LOCK["wanted"](["spark"], locked)
