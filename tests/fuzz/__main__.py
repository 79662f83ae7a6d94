"""Fuzz input classes with atheris, guided by the coverage of the parsers.

    python -m tests.fuzz [TARGET...] [--executions N] [--keep FOLDER]

Without TARGET: all. Begins with the valid inputs of each and those that were kept. `--keep`: folder to which inputs
with new coverage are written, and an input that failed. Prints one line per target and, for a failure, the traceback.
Exit code 1: at least one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import atheris

# It prints a line for each module.
with (
    contextlib.redirect_stderr(io.StringIO()),
    atheris.instrument_imports(include=["emulator", "spark_jobs"]),
):
    from tests.fuzz.corpus import kept_inputs
    from tests.fuzz.targets import TARGETS, Target

EXECUTIONS = 10_000
EXECUTION_SECONDS_MAX = 60
MEMORY_MIB_MAX = 2_048


def fuzz(target: Target, executions: int, folder: Path) -> None:
    """Run libFuzzer in this process, which it ends."""
    found, first = folder / "found", folder / "first"
    for one in (found, first):
        one.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate([*target.seeds(), *kept_inputs(target)]):
        (first / f"{number:04}").write_bytes(data)
    words = folder / "words.txt"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in (*target.words(), b"\0")))
    options = (
        f"-runs={executions}",
        f"-max_len={target.input_bytes_max}",
        f"-timeout={EXECUTION_SECONDS_MAX}",
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-dict={words}",
        f"-artifact_prefix={folder}/",
        "-seed=1",
        "-print_final_stats=1",
    )
    atheris.Setup([sys.argv[0], *options, str(found), str(first)], target.run)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def succeeds(target: Target, executions: int, folder: Path) -> bool:
    """Fuzz in a process of its own, and report the outcome."""
    folder.mkdir(parents=True, exist_ok=True)
    output, began = folder / "output.txt", time.monotonic()
    child = os.fork()
    if not child:
        with output.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        fuzz(target, executions, folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    outcome = "failed" if status else "no failure"
    print(
        f"{target.name}: {outcome} in {executions} executions, {time.monotonic() - began:.0f} s", flush=True
    )
    if status:
        text = output.read_text(errors="replace")
        print(text[max(text.find("=== Uncaught"), 0) :][-4_000:])
    return not status


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("targets", nargs="*", help=", ".join(TARGETS))
    parser.add_argument("--executions", type=int, default=EXECUTIONS)
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args()
    if unknown := set(chosen.targets) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        kept = chosen.keep or Path(folder)
        outcomes = [
            succeeds(TARGETS[name], chosen.executions, kept / name) for name in chosen.targets or TARGETS
        ]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
