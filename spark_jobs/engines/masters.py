"""Which Spark cluster computes a verdict. This is the only module with a default; all others leave the choice to it.

The first of these decides: the program's own `--master`; `spark-submit`, which has started Java and its session's
settings before this program; the environment variable SPARK_MASTER; Spark's own configuration, which is the variable
PYSPARK_SUBMIT_ARGS, `spark.master` in spark-defaults.conf, or the variable MASTER. Only without all of them Spark runs
in this process's own Java (`local[2]`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_MASTER = "local[2]"
"""Master of a program that was started without `spark-submit`, if none is configured."""
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Variable with which `spark-submit` passes the port of its Java to the program that it starts."""


class MasterRefused(Exception):
    """Two masters are requested, or the configuration cannot be read; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class ChosenMaster:
    """The master of a session, as far as it is known before the session starts."""

    url: str | None
    """Address of the master; None: only Spark knows it, because `spark-submit` has configured it."""
    is_set_here: bool
    """Whether the session must be built with `url`; otherwise Spark finds the same address itself."""

    @property
    def is_submitted(self) -> bool:
        """Whether `spark-submit` started this program, and Java before it."""
        return self.url is None

    @property
    def is_local(self) -> bool:
        """Whether a Java that is started here is the whole Spark."""
        return self.url is not None and is_local(self.url)


def is_local(master: str) -> bool:
    return master.startswith("local") and not master.startswith("local-cluster")


def choose_master(given: str | None, environment: Mapping[str, str] = os.environ) -> ChosenMaster:
    """Return the master to use; `given`: the program's own `--master`. Raises MasterRefused."""
    if _GATEWAY in environment:
        if given is not None:
            raise MasterRefused(
                f"--master {given} contradicts spark-submit, which has chosen a master already: name it there only"
            )
        return ChosenMaster(None, is_set_here=False)
    if given is not None:
        return ChosenMaster(given, is_set_here=True)
    if environment.get("SPARK_MASTER"):
        return ChosenMaster(environment["SPARK_MASTER"], is_set_here=True)
    configured = _configured(environment)
    return ChosenMaster(configured or DEFAULT_MASTER, is_set_here=not configured)


def is_submitted(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether `spark-submit` started this program."""
    return _GATEWAY in environment


def _configured(environment: Mapping[str, str]) -> str | None:
    """Return the master that Spark itself will use, in Spark's order; None if it is not configured. Raises
    MasterRefused."""
    arguments = environment.get("PYSPARK_SUBMIT_ARGS", "")
    try:
        words = shlex.split(arguments)
    except ValueError as problem:
        raise MasterRefused(f"PYSPARK_SUBMIT_ARGS={arguments} cannot be read: {problem}") from None
    return _submit_argument(words) or _in_defaults(environment) or environment.get("MASTER") or None


def _submit_argument(words: Sequence[str]) -> str | None:
    """Return `--master`, else `--conf spark.master`, of arguments of `spark-submit`."""
    configured = None
    for option, value in zip(words, [*words[1:], ""], strict=False):
        name, equals, joined = option.partition("=")
        if name == "--master":
            return joined if equals else value
        setting = joined if name == "--conf" and equals else value if option in ("--conf", "-c") else ""
        if setting.startswith("spark.master="):
            configured = setting.removeprefix("spark.master=")
    return configured


def _in_defaults(environment: Mapping[str, str]) -> str | None:
    """Return `spark.master` of spark-defaults.conf, a file of Java properties."""
    home, folder = environment.get("SPARK_HOME"), environment.get("SPARK_CONF_DIR")
    if not folder and not home:
        return None
    try:
        text = Path(folder or f"{home}/conf", "spark-defaults.conf").read_text(errors="replace")
    except OSError:
        return None
    found = re.findall(r"^[ \t]*spark\.master[ \t]*[=:\s][ \t]*(\S+)[ \t]*$", text, re.MULTILINE)
    return found[-1] if found else None
