"""The log output of a region's process: one line per event, as text or as JSON. Format and level can be changed at run
time."""

from __future__ import annotations

import json
import logging
from typing import Final

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMATS: Final = ("text", "json")


class TextLines(logging.Formatter):
    """`2026-11-23 02:54:55,123 INFO what happened`, with line ends escaped. Only a traceback takes further lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).replace("\n", "\\n").replace("\r", "\\r")


class JsonLines(logging.Formatter):
    """One object per line: `at`, `level`, `part`, `event`, and `traceback` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": round(record.created, 3),
            "level": record.levelname,
            "part": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def silence_kafka_client() -> None:
    """Suppress the log of the Kafka client, which reports each lost connection; the store logs outages itself."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def set_format(name: str) -> None:
    """Set the format of all further lines. ValueError for a name that is not one of `FORMATS`."""
    if name not in FORMATS:
        raise ValueError(f"{name!r} is none of {', '.join(FORMATS)}")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines() if name == "json" else TextLines())


def set_level(name: str) -> None:
    """Set the level of the root logger. ValueError for a name that is not one of `LEVELS`."""
    if name not in LEVELS:
        raise ValueError(f"{name!r} is none of {', '.join(LEVELS)}")
    logging.getLogger().setLevel(name)


def get_level() -> str:
    return logging.getLevelName(logging.getLogger().level)
