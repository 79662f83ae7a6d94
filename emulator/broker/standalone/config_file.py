"""Pulsar's configuration file: `name=value` lines, and the environment variables that override them.

    python -m emulator.broker.standalone.config_file conf/standalone.conf

writes the variables `PULSAR_PREFIX_<name>` into the file, as `apply-config-from-env.py` of Pulsar's images does. A
variable without the prefix counts if the file, or a region, has a setting of that name. `main_with_prefix` does the
same with another prefix, for `client.conf`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from emulator.broker.standalone.settings import KNOWN

PREFIX: Final = "PULSAR_PREFIX_"
CLIENT_SETTINGS: Final = frozenset({"authPlugin", "authParams"})
"""Settings of `client.conf`, which `bin/pulsar-admin` reads."""


def parse_config(text: str) -> dict[str, str]:
    """Return the settings in a configuration file, the last value of each. Raises ValueError for a line that is neither
    empty, a comment nor `name=value`."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, separator, value = stripped.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"line {number}: {stripped[:100]!r} is not name=value")
        found[name.strip()] = value.strip()
    return found


def read_config(path: Path) -> tuple[str, dict[str, str]]:
    """Return the text of a configuration file and its settings. Raises OSError, or ValueError with the file's path."""
    try:
        text = path.read_text(encoding="utf-8")
        return text, parse_config(text)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def settings_in(
    environment: Mapping[str, str], names: Collection[str], prefix: str = PREFIX
) -> dict[str, str]:
    """Return the settings in environment variables: those with the prefix, which outrank, and those in `names`. Raises
    ValueError for a value of several lines, which would become several settings."""
    plain = {name: value for name, value in environment.items() if name in names}
    prefixed = {
        variable.removeprefix(prefix): value
        for variable, value in environment.items()
        if variable.startswith(prefix) and variable != prefix
    }
    for name, value in {**plain, **prefixed}.items():
        if len(f"{name}={value}".splitlines()) > 1 or "=" in name:
            raise ValueError(f"{prefix}{name}: name and value must be one line, and the name without '='")
    return {**plain, **prefixed}


def with_settings(text: str, settings: Mapping[str, str]) -> str:
    """Return the text of a configuration file with these settings: replaced in place, or else added at the end."""
    lines, missing = [], dict(settings)
    for line in text.splitlines():
        name = line.partition("=")[0].strip()
        missing.pop(name, None)
        lines.append(f"{name}={settings[name]}" if name in settings else line)
    return "".join(f"{line}\n" for line in [*lines, *(f"{name}={value}" for name, value in missing.items())])


def main(arguments: list[str]) -> int:
    """Write the settings of the environment into configuration files; return the exit code."""
    if not arguments:
        print("usage: apply-config-from-env.py FILE...", file=sys.stderr)
        return 2
    return _apply(PREFIX, arguments)


def main_with_prefix(arguments: list[str]) -> int:
    """Write the settings of the environment with a prefix into configuration files; return the exit code."""
    if len(arguments) < 2 or not arguments[0]:
        print("usage: apply-config-from-env-with-prefix.py PREFIX FILE...", file=sys.stderr)
        return 2
    return _apply(arguments[0], arguments[1:])


def _apply(prefix: str, paths: list[str]) -> int:
    try:
        for path in map(Path, paths):
            text, present = read_config(path)
            known = CLIENT_SETTINGS if path.name == "client.conf" else KNOWN
            found = settings_in(os.environ, {*present, *known}, prefix)
            path.write_bytes(with_settings(text, found).encode())
    except (OSError, ValueError) as problem:
        print(f"geoemu: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
