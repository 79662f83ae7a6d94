"""Which entries of a container's archive may be unpacked here."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.errors import RuntimeFailure
from emulator.runtimes.docker_engine import place_of


@pytest.mark.parametrize(
    ("name", "place"),
    [("geoemu/store.sqlite", "store.sqlite"), ("geoemu/lost-1/store.sqlite", "lost-1/store.sqlite")],
)
def test_a_file_keeps_its_place_in_the_folder(name: str, place: str, tmp_path: Path) -> None:
    assert place_of(name, tmp_path) == tmp_path / place


@pytest.mark.parametrize("name", ["geoemu/../../etc/passwd", "/etc/passwd", "geoemu", "geoemu/a/../../../b"])
def test_nothing_is_written_outside_of_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match="lies in no folder"):
        place_of(name, tmp_path)
