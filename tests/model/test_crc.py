"""The checksum that is loaded without its package is that of the package."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.model import crc
from emulator.model.crc import crc32c


@given(st.binary())
def test_it_is_the_checksum_of_the_package(data: bytes) -> None:
    assert crc32c(data) == crc32c(memoryview(data)) == package.crc32c(data)


def test_a_region_does_not_import_the_package() -> None:
    program = "import sys, emulator.broker.main; print(*{'crc32c', 'argparse'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_package_with_other_modules_is_imported_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crc.PathFinder, "find_spec", lambda name, path: None)
    assert crc._extension() is package
