"""Generate `geoemu/async_geo.py`, the asynchronous twin of `Geo`: `python -m scripts.async_api`.

Each method calls the one of `Geo` with the same parameters, so the two cannot differ; their signatures are written out,
so that type checkers and editors see them. `tests/test_async_library.py` compares the file with `Geo`.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from geoemu.run import Geo

ROOT: Final = Path(__file__).parent.parent
TARGET: Final = ROOT / "geoemu" / "async_geo.py"
AS_THEY_ARE: Final = ("recorded",)
"""Methods that do not wait for anything, and stay synchronous."""
_HEAD: Final = '''"""A run for asynchronous programs: the methods of `Geo`, to be awaited.

Generated from `Geo` by `python -m scripts.async_api`. Do not edit.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from emulator.model.explanations import Explanation
from emulator.model.failover_plans import FailoverPlan, Translation
from emulator.run.service_contract import Contract
from emulator.runtimes.contract import RegionState
from emulator.scenarios.region_removal import RegionRemoval
from geoemu.asynchronous import AsyncFault, AsyncRun
from geoemu.run import Tapped
from geoemu.verdict import Verdict

_Client = TypeVar("_Client")


class AsyncGeo(AsyncRun):
    """A run, returned by `up_async` and `attach_async`. A method that is cancelled raises when its effect is complete.
    Faults are awaited, or end with the block of an `async with` statement."""
'''


def generate() -> str:
    """Return the formatted text of the module."""
    text = _HEAD + "".join(f"\n{method}" for method in _methods())
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def _methods() -> Iterator[str]:
    for name, method in _in_order_of_source():
        signature = inspect.signature(method)
        call = f"self._geo.{name}({', '.join(_arguments(signature))})"
        document = f'        """{method.__doc__}"""\n'
        parameters = ", ".join(["self", *_written(signature)])
        returned = signature.return_annotation
        if name in AS_THEY_ARE:
            yield f"    def {name}({parameters}) -> {returned}:\n{document}        return {call}\n"
        elif returned == "FaultScope":
            yield f"    def {name}({parameters}) -> AsyncFault:\n{document}        return self._fault(lambda: {call})\n"
        else:
            returns = "" if returned == "None" else "return "
            body = f"        {returns}await self._call(lambda: {call})\n"
            yield f"    async def {name}({parameters}) -> {returned}:\n{document}{body}"


def _in_order_of_source() -> Iterator[tuple[str, object]]:
    for cls in reversed(Geo.__mro__):
        for name, method in vars(cls).items():
            if not name.startswith("_") and inspect.isfunction(method):
                yield name, method


def _written(signature: inspect.Signature) -> Iterator[str]:
    """Yield the parameters as they are written in the source, without `self`."""
    _, *parameters = signature.parameters.values()
    has_star = False
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            has_star = True
            yield f"*{one.name}: {one.annotation}"
        elif one.kind is one.VAR_KEYWORD:
            yield f"**{one.name}: {one.annotation}"
        else:
            if one.kind is one.KEYWORD_ONLY and not has_star:
                has_star = True
                yield "*"
            default = "" if one.default is one.empty else f" = {one.default!r}"
            yield f"{one.name}: {one.annotation}{default}"


def _arguments(signature: inspect.Signature) -> Iterator[str]:
    _, *parameters = signature.parameters.values()
    for one in parameters:
        match one.kind:
            case one.VAR_POSITIONAL:
                yield f"*{one.name}"
            case one.VAR_KEYWORD:
                yield f"**{one.name}"
            case one.KEYWORD_ONLY:
                yield f"{one.name}={one.name}"
            case _:
                yield one.name


if __name__ == "__main__":
    TARGET.write_text(generate())
