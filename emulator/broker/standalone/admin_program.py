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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from emulator.broker.standalone.admin_commands import COMMANDS, AdminCommand, AdminRequest
from emulator.broker.standalone.config_file import read_config
from emulator.broker.standalone.program import HOME, NO_FUNCTIONS
from emulator.model.suggestions import nearest
from emulator.net.http import HttpResponse, NoHttpResponse, call
from emulator.net.network import SocketNetwork

FUNCTIONS: Final = ("functions", "functions-worker", "sources", "sinks", "source", "sink", "packages")
RESPONSE_SECONDS: Final = 60.0
"""Time for one response; loading or deleting a topic with many partitions takes a while."""


class UsageError(Exception):
    """The command is wrong, or not one of those here."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; {' '.join(self.format_usage().split())}")


def main(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    try:
        url, words = _split(arguments)
        name, command, options = parse_command(words)
        response = asyncio.run(_send(url, command, options))
    except (UsageError, ValueError) as problem:
        print(f"geoemu: {problem}", file=sys.stderr)
        return 2
    except NoHttpResponse as problem:
        print(f"geoemu: no response of {url}: {problem}", file=sys.stderr)
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


def _split(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the URL of the admin API, and the words after the global options."""
    words = list(arguments)
    if words[:1] in (["--admin-url"], ["--server-url"]):
        if len(words) < 2 or not urlsplit(words[1]).hostname:
            raise UsageError(f"pulsar-admin {words[0]}: a URL such as http://localhost:8080 is missing")
        return words[1], words[2:]
    home = Path(os.environ.get("PULSAR_HOME") or HOME)
    try:
        _, values = read_config(home / "conf" / "standalone.conf")
    except OSError:
        values = {}
    return f"http://127.0.0.1:{values.get('webServicePort') or 8080}", words


async def _send(url: str, command: AdminCommand, options: argparse.Namespace) -> HttpResponse:
    request = command.request(options)
    if isinstance(request.body, dict) and request.body.get("allowedClusters", ()) is None:
        # As pulsar-admin does: a tenant may use all clusters unless some are named.
        clusters = await _call(url, AdminRequest("GET", "/admin/v2/clusters"))
        request.body["allowedClusters"] = clusters.json()
    return await _call(url, request)


async def _call(url: str, request: AdminRequest) -> HttpResponse:
    address = urlsplit(url)
    return await call(
        SocketNetwork(),
        address.hostname or "",
        address.port or 8080,
        request.method,
        request.target,
        request.body,
        seconds=RESPONSE_SECONDS,
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
