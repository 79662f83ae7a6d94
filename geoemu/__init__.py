"""geoemu, for programs.

    client = geoemu.recorded(pulsar.Client("pulsar://127.0.0.1:15437"))

writes down what an unmodified program asks of Pulsar and is told, as evidence for `geoemu verify`
(docs/OWN_SERVICE.md).

What is named here is what other people's code may rely on; everything else, in `emulator` and `spark_jobs`, may change
from one version to the next. Nothing is loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.recording import recorded

__all__ = ["recorded"]

_HOMES = {"recorded": "emulator.recording"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
