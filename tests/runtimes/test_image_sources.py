"""Images that are older than the code are reported with the command that rebuilds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.runtimes import image_sources
from emulator.runtimes.image_sources import SOURCES, SOURCES_LABEL, sources_digest, stale_warning

from .containers import ROOT


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the sources of the images."""
    for name in (
        "emulator/model/values.py",
        "emulator/cli/run.py",
        "emulator/__pycache__/model.pyc",
        "emulator/model/values.cpython-311.so",
        "scripts/compile.py",
        "compose/images.sh",
        "compose/region/Dockerfile",
        "compose/kafka/start",
        "requirements.lock",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(image_sources.emulator, "__file__", str(tmp_path / "emulator" / "__init__.py"))
    return tmp_path


def test_what_an_image_is_made_from_is_there() -> None:
    wanted = {source for sources in SOURCES.values() for source in sources}
    assert [source for source in wanted if not (ROOT / source).exists()] == []


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("emulator/model/values.py", "region"),
        ("emulator/new.py", "region"),
        ("compose/region/Dockerfile", "region"),
        ("requirements.lock", "region"),
        ("compose/kafka/start", "kafka"),
        ("emulator/cli/run.py", ""),
        ("emulator/__pycache__/model.pyc", ""),
        ("emulator/model/values.cpython-311.so", ""),
        ("scripts/compile.py", "region"),
        ("compose/images.sh", ""),
    ],
)
def test_an_image_is_stale_when_what_it_is_made_from_has_changed(
    sources: Path, changed: str, stale: str
) -> None:
    kinds = ("region", "kafka")
    labels = {kind: {SOURCES_LABEL: sources_digest(sources, kind)} for kind in kinds}
    assert [stale_warning(kind, "x:local", labels[kind]) for kind in kinds] == [None, None]
    (sources / changed).write_text("something else")
    found = {kind: stale_warning(kind, "x:local", labels[kind]) for kind in kinds}
    assert [kind for kind in kinds if found[kind]] == ([stale] if stale else [])


def test_the_command_line_is_a_source_of_the_image_that_has_it(sources: Path) -> None:
    (sources / "compose" / "testcontainers").mkdir()
    before = sources_digest(sources, "testcontainers")
    (sources / "emulator" / "cli" / "run.py").write_text("something else")
    assert sources_digest(sources, "testcontainers") != before


def test_a_renamed_file_is_a_change(sources: Path) -> None:
    before = sources_digest(sources, "region")
    (sources / "emulator" / "model" / "values.py").rename(sources / "emulator" / "nouns.py")
    assert sources_digest(sources, "region") != before


def test_the_sentence_contains_the_command_that_rebuilds_the_image(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "x:local was not built from the present sources and is used unchanged: "
    other = {SOURCES_LABEL: "other"}
    command = f"`cd {sources}; bash compose/images.sh region` rebuilds it"
    assert stale_warning("region", "x:local", other) == said + command
    monkeypatch.chdir(sources)
    assert stale_warning("region", "x:local", {}) == said + "`bash compose/images.sh region` rebuilds it"


def test_foreign_images_and_images_without_sources_are_not_reported_as_stale(sources: Path) -> None:
    assert stale_warning("kafka", "apache/kafka:4.1.0", {}) is None
    (sources / "compose" / "images.sh").unlink()
    assert stale_warning("region", "x:local", {}) is None
