"""Starting a Kafka on a machine without Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.errors import RuntimeFailure
from emulator.runtimes.kafka_server import KafkaServer


@pytest.mark.parametrize("is_formatted", [False, True])
def test_a_kafka_without_java_is_a_runtime_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_formatted: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if is_formatted:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "meta.properties").touch()
    with pytest.raises(RuntimeFailure, match="Kafka needs Java 17 or newer, and there is no `java` in PATH"):
        KafkaServer(tmp_path, tmp_path / "jars").start()
