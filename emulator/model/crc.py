"""The checksum of entries and of stored groups: CRC-32C, computed by the package `crc32c`.

Only the extension module of the package is loaded. The package itself would also import `argparse` and `email`, and
read the metadata of installed packages to find its own version: a twentieth of the time in which a region starts.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Final


def _extension() -> ModuleType:
    package = find_spec("crc32c")
    if package is None:
        raise ModuleNotFoundError("No module named 'crc32c'", name="crc32c")
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:  # another version of the package, with other modules
        return import_module("crc32c")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crc32c: Final[Callable[..., int]] = _extension().crc32c
