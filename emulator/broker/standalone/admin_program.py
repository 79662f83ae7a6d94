"""`bin/pulsar-admin GROUP COMMAND`: the commands with which test set-ups create tenants, namespaces, topics and
subscriptions, sent to the admin API of the region in the container.

Exit codes: 0; 1: the region refused the request, or does not respond; 2: wrong usage, or a command that is not here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from emulator.broker.standalone.admin_commands import COMMANDS, AdminCommand, AdminRequest
from emulator.broker.standalone.admin_credentials import authorization
from emulator.broker.standalone.config_file import read_config
from emulator.broker.standalone.program import HOME, NO_FUNCTIONS
from emulator.model.suggestions import nearest
from emulator.net.http import HttpResponse, NoHttpResponse, call
from emulator.net.network import SocketNetwork

FUNCTIONS: Final = ("functions", "functions-worker", "sources", "sinks", "source", "sink", "packages")
RESPONSE_SECONDS: Final = 60.0
"""Time for one response; loading or deleting a topic with many partitions takes a while."""


URL: Final = "url"
GLOBAL_OPTIONS: Final = {
    "--admin-url": URL,
    "--server-url": URL,
    "--auth-plugin": "authPlugin",
    "--auth-params": "authParams",
}
RULES: Final = {
    URL: "a URL such as http://localhost:8080 is missing",
    "authPlugin": "the name of a class or token or basic is missing",
    "authParams": "parameters such as token:… are missing",
}


@dataclass(frozen=True, slots=True)
class _Target:
    """An admin API, and the value of the header Authorization of requests to it."""

    url: str
    authorization: str


class UsageError(Exception):
    """The command is wrong, or not one of those here."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; {' '.join(self.format_usage().split())}")


def main(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    try:
        given, words = _split(arguments)
        name, command, options = parse_command(words)
        target = _target(given)
        response = asyncio.run(_send(target, command, options))
    except (UsageError, ValueError) as problem:
        print(f"geoemu: {problem}", file=sys.stderr)
        return 2
    except NoHttpResponse as problem:
        print(f"geoemu: no response of {target.url}: {problem}", file=sys.stderr)
        return 1
    if response.status >= 300:
        print(f"geoemu: {name}: HTTP {response.status}: {_reason(response)}", file=sys.stderr)
        return 1
    if response.body:
        _show(response)
    return 0


def parse_command(words: Sequence[str]) -> tuple[str, AdminCommand, argparse.Namespace]:
    """Return the name, the command and the values of the words after the global options. Raises UsageError."""
    if words and words[0] in FUNCTIONS:
        raise UsageError(f"pulsar-admin {words[0]}: {NO_FUNCTIONS.partition(':')[0]}")
    name = " ".join(words[:2])
    command = COMMANDS.get(name)
    if command is None:
        near = nearest(name, tuple(COMMANDS))
        hint = f"do you mean {near}? " if near else ""
        raise UsageError(
            f"pulsar-admin {name or 'without a command'}: {hint}this image has {', '.join(COMMANDS)}; "
            "all others are requests of the admin API on port 8080"
        )
    parser = _Parser(f"pulsar-admin {name}", allow_abbrev=False, add_help=False)
    if command.subject:
        parser.add_argument("subject", metavar=command.subject.upper())
    for names, keywords in command.options:
        parser.add_argument(*names, **keywords)
    return name, command, parser.parse_args(words[2:])


def _split(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of the global options, by setting, and the words after them."""
    words, given = list(arguments), {}
    while words and (setting := GLOBAL_OPTIONS.get(words[0])):
        if len(words) < 2:
            raise UsageError(f"pulsar-admin {words[0]}: {RULES[setting]}")
        given[setting] = words[1]
        words = words[2:]
    return given, words


def _target(given: Mapping[str, str]) -> _Target:
    """Return where requests go, and with which credentials: by global options, or else by the configuration files."""
    home = Path(os.environ.get("PULSAR_HOME") or HOME)
    values = {**_settings(home / "conf" / "client.conf"), **given}
    port = _settings(home / "conf" / "standalone.conf").get("webServicePort") or 8080
    url = given.get(URL, f"http://127.0.0.1:{port}")
    try:
        address = urlsplit(url)
        complete = address.scheme == "http" and bool(address.hostname) and (address.port or 80) > 0
    except ValueError:
        complete = False
    if not complete:
        raise UsageError(f"pulsar-admin --admin-url {url}: {RULES[URL]}")
    return _Target(url, authorization(values.get("authPlugin", ""), values.get("authParams", "")))


def _settings(path: Path) -> dict[str, str]:
    try:
        return read_config(path)[1]
    except OSError:
        return {}


async def _send(target: _Target, command: AdminCommand, options: argparse.Namespace) -> HttpResponse:
    request = command.request(options)
    if isinstance(request.body, dict) and request.body.get("allowedClusters", ()) is None:
        # As pulsar-admin does: a tenant may use all clusters unless some are named.
        clusters = await _call(target, AdminRequest("GET", "/admin/v2/clusters"))
        if clusters.status != 200:
            return clusters
        request.body["allowedClusters"] = clusters.json()
    return await _call(target, request)


async def _call(target: _Target, request: AdminRequest) -> HttpResponse:
    address = urlsplit(target.url)
    return await call(
        SocketNetwork(),
        address.hostname or "",
        address.port or 8080,
        request.method,
        request.target,
        request.body,
        seconds=RESPONSE_SECONDS,
        authorization=target.authorization,
    )


def _reason(response: HttpResponse) -> str:
    try:
        return str(response.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return response.body.decode(errors="replace")[:500]


def _show(response: HttpResponse) -> None:
    """Print what a response contains as pulsar-admin does: names one per line, other values as JSON."""
    try:
        content: Any = response.json()
    except ValueError:
        content = response.body.decode(errors="replace")
    if isinstance(content, list) and all(isinstance(one, str) for one in content):
        print("\n".join(content))
    elif isinstance(content, str):
        print(content)
    else:
        print(json.dumps(content, indent=2))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
