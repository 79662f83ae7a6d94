"""The Python API of geoemu.

    client = geoemu.recorded(pulsar.Client("pulsar://127.0.0.1:15437"))

records the operations of an unmodified program and the responses that it receives, as evidence for
`geoemu verify` (docs/OWN_SERVICE.md).

    with geoemu.up("topology.yaml") as geo:
        geo.kill("us-east")
        ...
        assert geo.verify().is_valid

controls a run like the verbs of the command line (docs/LIBRARY.md).

The names of this module are stable; everything else, in `emulator` and `spark_jobs`, may change from one version to
the next. Nothing is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.errors import ConfigurationError, GeoemuError, RuntimeFailure
    from emulator.model.explanations import Explanation
    from emulator.model.failover_plans import FailoverPlan, PartitionedPlan, Translation
    from emulator.recording import recorded
    from emulator.run.service_contract import Contract
    from geoemu.async_geo import AsyncGeo
    from geoemu.async_up import attach_async, up_async
    from geoemu.run import Geo, attach, up
    from geoemu.simulated import SimulatedRun, simulate
    from geoemu.verdict import Finding, Verdict

__all__ = [
    "AsyncGeo",
    "ConfigurationError",
    "Contract",
    "Explanation",
    "FailoverPlan",
    "Finding",
    "Geo",
    "GeoemuError",
    "PartitionedPlan",
    "RuntimeFailure",
    "SimulatedRun",
    "Translation",
    "Verdict",
    "attach",
    "attach_async",
    "recorded",
    "simulate",
    "up",
    "up_async",
]

_MODULES = {
    "AsyncGeo": "geoemu.async_geo",
    "ConfigurationError": "emulator.errors",
    "Contract": "emulator.run.service_contract",
    "Explanation": "emulator.model.explanations",
    "FailoverPlan": "emulator.model.failover_plans",
    "Finding": "geoemu.verdict",
    "Geo": "geoemu.run",
    "GeoemuError": "emulator.errors",
    "PartitionedPlan": "emulator.model.failover_plans",
    "RuntimeFailure": "emulator.errors",
    "SimulatedRun": "geoemu.simulated",
    "Translation": "emulator.model.failover_plans",
    "Verdict": "geoemu.verdict",
    "attach": "geoemu.run",
    "attach_async": "geoemu.async_up",
    "recorded": "emulator.recording",
    "simulate": "geoemu.simulated",
    "up": "geoemu.run",
    "up_async": "geoemu.async_up",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    from emulator.config import renamed

    if name in renamed.PYTHON:
        raise AttributeError(f"geoemu.{renamed.sentence(name, renamed.PYTHON[name])}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
