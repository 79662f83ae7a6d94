"""Parse single settings of Pulsar's configuration file; each error names setting, value and rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from emulator.core.policies.broker_settings import value_from_text
from emulator.core.policies.declaration import Policy

NUMBER_MAX: Final = 2**31 - 1


class SettingReader:
    """Reads values of settings. Raises ValueError with setting, value and rule."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def parsed(self, name: str, parse: Callable[[str], Any]) -> Any:
        try:
            return parse(self._values[name])
        except ValueError as problem:
            raise ValueError(f"{name}={self._values[name]}: {problem}") from None

    def number(self, name: str, least: int, most: int = NUMBER_MAX) -> int:
        def parse(text: str) -> int:
            value = int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else None
            if value is None or not least <= value <= most:
                raise ValueError(f"must be a whole number from {least} to {most}")
            return value

        found: int = self.parsed(name, parse)
        return found

    def flag(self, name: str) -> bool:
        found: bool = self.parsed(name, _flag)
        return found

    def text(self, name: str) -> str:
        return self._values[name]

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names in a list with commas."""
        return tuple(one.strip() for one in self._values[name].split(",") if one.strip())

    def policy(self, name: str, policy: Policy[Any]) -> Any:
        return self.parsed(name, lambda text: value_from_text(policy, text))


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"
