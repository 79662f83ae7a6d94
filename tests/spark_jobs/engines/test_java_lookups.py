"""Classes and methods of Java are looked up once per session."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.engines.java_lookups import CLASSES, CachedClass, cache_classes
from spark_jobs.engines.spark import SparkEngine


class View:
    """A view of Java, or one of its classes, that counts the names that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return View()


def test_a_method_is_asked_for_once() -> None:
    java_class = View()
    cached = CachedClass(java_class)
    assert cached.col is cached.col
    assert cached.lit is not cached.col
    assert java_class.asked == ["col", "lit"]


def test_classes_are_cached_once_and_others_are_asked_for() -> None:
    java = View()
    cache_classes(java)
    functions = java.functions
    cache_classes(java)
    assert java.functions is functions
    assert java.asked == list(CLASSES)
    assert java.java is not java.java


def test_a_method_that_java_lacks_is_an_error_each_time() -> None:
    class Empty:
        pass

    cached = CachedClass(Empty())
    for _ in range(2):
        with pytest.raises(AttributeError):
            _ = cached.missing


@pytest.mark.long
def test_expressions_are_made_without_asking_for_classes(
    spark: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if another version of PySpark accesses the classes by other names."""

    def make() -> Any:
        F = spark.functions
        return spark.session.range(3).select(F.sum(F.coalesce("id", F.lit(0))).alias("n"))

    expected = make().collect()
    calls: list[str] = []
    java: Any = spark.session.sparkContext._jvm
    client = type(java._gateway_client)
    send = client.send_command

    def record(self: Any, command: str, *rest: Any, **more: Any) -> Any:
        calls.append(command)
        return send(self, command, *rest, **more)

    monkeypatch.setattr(client, "send_command", record)
    frame = make()
    assert any(call.startswith("c\n") for call in calls)
    assert [call for call in calls if call.startswith("r\n")] == []
    assert frame.collect() == expected
