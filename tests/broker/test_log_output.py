"""One line per event, whatever it contains; level and format change while a region runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from emulator.broker.log_output import JsonLines, TextLines, set_format, set_level
from tests.broker.admin.served import served

EVENT = logging.LogRecord("emulator.x", logging.WARNING, "", 0, "topic %s\nis gone", ("a\r\nb",), None)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    level, formatters = root.level, [(one, one.formatter) for one in root.handlers]
    yield
    root.setLevel(level)
    for handler, formatter in formatters:
        handler.setFormatter(formatter)


def test_an_event_is_one_line_of_text() -> None:
    assert TextLines().format(EVENT).endswith("WARNING topic a\\r\\nb\\nis gone")


def test_an_event_is_one_line_of_json() -> None:
    line = JsonLines().format(EVENT)
    assert "\n" not in line
    said = json.loads(line)
    assert (said["level"], said["part"], said["event"]) == ("WARNING", "emulator.x", "topic a\r\nb\nis gone")


@pytest.mark.parametrize("change", [set_format, set_level])
def test_an_unknown_level_or_format_is_rejected(change: object) -> None:
    with pytest.raises(ValueError, match="is none of"):
        change("loud")  # type: ignore[operator]


def test_both_change_while_a_region_runs() -> None:
    with served() as us:
        assert us.ask("PUT", "/geoemu/v1/logging", b'{"level": "ERROR", "format": "json"}').status == 204
        assert us.get("/geoemu/v1/logging") == {"level": "ERROR"}
        assert us.ask("PUT", "/geoemu/v1/logging", b'{"level": "INFO", "format": "xml"}').status == 400
        assert us.ask("PUT", "/geoemu/v1/logging", b'{"colour": "red"}').status == 400
        assert us.get("/geoemu/v1/logging") == {"level": "ERROR"}, "rejected as a whole"
