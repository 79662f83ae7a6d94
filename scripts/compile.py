"""Compile the modules of a region that gain from it, or remove the compiled ones.

    python -m scripts.compile build|remove [FOLDER]
    python -m scripts.compile export FOLDER

FOLDER has the package `emulator`; by default it is this checkout. `export` puts the compiled modules of this checkout
into a folder without sources, for an image. `emulator.compiled` names the modules. mypyc
translates them to C, and a C compiler builds an extension module beside each source, which Python then imports instead
of it. The sources remain the reference: without the extension modules everything works the same, and slower.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from emulator.compiled import LIBRARY, MODULES, compiled_digest, sources_digest  # noqa: E402

MYPY = """[mypy]
ignore_missing_imports = True
follow_imports = silent
"""
"""Types were checked by `make lint`; packages that only other modules import may be missing."""
LAST_LINES = 15
"""Lines of a failed compilation that are printed."""


class CannotCompile(Exception):
    """The message ends with the command to type."""


def build(folder: Path, source: Path | None = None) -> str:
    """Compile the modules of `source/emulator` (by default `folder/emulator`) into `folder/emulator`, unless that was
    done for the same sources. Returns a sentence."""
    package, origin = folder / "emulator", (source or folder) / "emulator"
    digest = sources_digest(origin)
    if compiled_digest(package) == digest:
        return f"the {len(MODULES)} compiled modules are those of the present sources"
    check_tools()
    remove(folder)
    with tempfile.TemporaryDirectory(prefix="geoemu-compile-") as temporary:
        copy = Path(temporary) / "emulator"
        shutil.copytree(origin, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        _run_compiler(copy.parent, digest)
        for extension in sorted(copy.rglob("*.so")):
            target = package / extension.relative_to(copy)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(extension, target)
    if compiled_digest(package) != digest:
        raise CannotCompile(f"the compiler left no library in {package}. Type: make slow")
    return f"{len(MODULES)} modules are compiled"


def remove(folder: Path) -> str:
    """Remove the compiled modules of all Pythons. Returns a sentence."""
    package = folder / "emulator"
    found = [*package.glob(f"{LIBRARY}*.so")]
    for module in MODULES:
        source = package / module
        found += source.parent.glob(f"{source.stem}.*.so")
    for path in found:
        path.unlink()
    return "the compiled modules are removed" if found else "no module is compiled"


def check_tools() -> None:
    """Raise CannotCompile if the C compiler, Python's headers or mypyc are missing."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise CannotCompile(f"there is no C compiler {compiler}. Type: sudo apt-get install gcc libc6-dev")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise CannotCompile(f"{headers} has no Python.h. Type: sudo apt-get install python3-dev")
    for name in ("mypyc", "setuptools"):
        if find_spec(name) is None:
            raise CannotCompile(f"{sys.executable} has no {name}. Type: make setup GOAL=fast")


def _run_compiler(folder: Path, digest: str) -> None:
    """Compile the modules of a copy in place, by a program of its own: setuptools prints much and works in the current
    directory."""
    done = subprocess.run(
        [sys.executable, __file__, "in-place", digest],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = "\n  ".join(done.stdout.strip().splitlines()[-LAST_LINES:])
        raise CannotCompile(f"the compilation failed:\n  {lines}\nTo work without it, type: make slow")


def _compile_in_place(digest: str) -> None:
    from mypyc.build import mypycify
    from setuptools import setup

    Path("mypy.ini").write_text(MYPY)
    extensions = mypycify(
        ["--config-file=mypy.ini", *(f"emulator/{module}" for module in MODULES)],
        group_name=f"emulator.{LIBRARY}{digest}",
        opt_level="2",
        debug_level="0",
    )
    for extension in extensions:
        # A newer compiler may have new warnings about generated code.
        extension.extra_compile_args = [one for one in extension.extra_compile_args if one != "-Werror"]
    setup(name="geoemu", packages=[], ext_modules=extensions, script_args=["build_ext", "--inplace"])


def main(arguments: list[str]) -> int:
    match arguments:
        case ["in-place", digest]:
            _compile_in_place(digest)
            return 0
        case ["build" | "remove" | "export" as verb, *rest] if len(rest) <= 1 and (rest or verb != "export"):
            folder = Path(rest[0]).resolve() if rest else ROOT
            if verb != "export" and not (folder / "emulator" / "compiled.py").is_file():
                print(f"compile: {folder} has no package emulator", file=sys.stderr)
                return 2
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    actions = {"build": build, "remove": remove, "export": lambda folder: build(folder, ROOT)}
    try:
        print(f"compile: {actions[verb](folder)}")
    except CannotCompile as problem:
        print(f"compile: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            remove(folder)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
