"""A Kafka process starts as quickly as it can, with any source of its jars."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.runtimes.kafka_server import (
    ARCHIVE,
    FORMATTED,
    KafkaServer,
    fetch_jars,
    find_jars,
    is_ready,
)

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture
def bare_jars(kafka_server: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with only the jars, as a foreign Maven left them. (The other fixture makes sure that there are
    some.)"""
    brought = find_jars()
    assert brought is not None
    folder = tmp_path / "jars"
    folder.mkdir()
    for jar in brought.glob("*.jar"):
        (folder / jar.name).symlink_to(jar)
    monkeypatch.setenv("GEOEMU_KAFKA_JARS", str(folder))
    return folder


def test_what_lets_it_start_quickly_is_made_where_it_is_missing(
    bare_jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetch_jars() == bare_jars
    assert (bare_jars / ARCHIVE).is_file()
    assert (bare_jars / FORMATTED / "meta.properties").is_file()

    server = KafkaServer(tmp_path / "kafka", bare_jars)
    monkeypatch.delattr(KafkaServer, "_format")  # it needs no Java for that any more
    try:
        for _ in range(2):
            server.start()
            assert is_ready("127.0.0.1", server.port)
            server.kill()
    finally:
        server.kill()
