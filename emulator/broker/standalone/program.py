"""`bin/pulsar standalone`: serve one region that is configured like Pulsar's standalone broker. `bin/pulsar tokens`:
create keys and tokens.

Exit codes are those of `broker.main`; wrong usage and settings that cannot be applied: 2, with one sentence on stderr.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Final, NoReturn

from emulator import __version__
from emulator.broker.log_output import set_format
from emulator.broker.main import serve
from emulator.broker.standalone.config_file import read_config
from emulator.broker.standalone.settings import NAMESPACE, ignored, standalone_config
from emulator.broker.standalone.token_commands import add_token_commands, run_token_command

logger = logging.getLogger(__name__)

HOME: Final = Path("/pulsar")
"""Pulsar's folder in images, which `PULSAR_HOME` overrides."""
STORAGE_OPTIONS: Final = (
    "--metadata-dir",
    "--metadata-url",
    "--zookeeper-dir",
    "--zookeeper-port",
    "--bookkeeper-dir",
    "--bookkeeper-port",
    "--num-bookies",
    "--stream-storage-port",
)
"""Options with a value that concern stores which a region does not have."""
BASIC_USERS_PROPERTY: Final = "pulsar.auth.basic.conf"
"""Java system property with the users of basic authentication, which Pulsar reads besides `basicAuthConf`."""
NO_FUNCTIONS: Final = (
    "there are no functions and no connectors: add --no-functions-worker (Testcontainers modules do so unless "
    "the functions worker is enabled)"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"geoemu: pulsar {message}; {self.format_usage().strip()}", file=sys.stderr)
        sys.exit(2)


def _parser(home: Path) -> argparse.ArgumentParser:
    parser = _Parser(
        "pulsar", allow_abbrev=False, description="One emulated region for programs made for Pulsar."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="standalone|tokens|version")
    commands.add_parser("version", help="print the version of geoemu")
    add_token_commands(commands)
    standalone = commands.add_parser("standalone", allow_abbrev=False, help="serve a standalone cluster")
    add = standalone.add_argument
    config = os.environ.get("PULSAR_STANDALONE_CONF") or str(home / "conf" / "standalone.conf")
    add("-c", "--config", type=Path, default=Path(config), metavar="FILE", help="default: %(default)s")
    add("-a", "--advertised-address", default="", metavar="HOST", help="host that HTTP lookups return")
    add("-nfw", "--no-functions-worker", action="store_true", help="required: there is no functions worker")
    add("-nss", "--no-stream-storage", action="store_true", help="accepted: there is no stream storage")
    add("--wipe-data", action="store_true", help="delete the stored messages and metadata first")
    for option in STORAGE_OPTIONS:
        add(option, default=None, metavar="VALUE", help="accepted without effect")
    return parser


def _standalone(options: argparse.Namespace, home: Path) -> int:
    """Serve the region until it is stopped. OSError or ValueError when its settings cannot be applied."""
    if not options.no_functions_worker:
        raise ValueError(NO_FUNCTIONS)
    _, values = read_config(options.config)
    if users := _system_property(BASIC_USERS_PROPERTY):
        values.setdefault("basicAuthConf", users)
    if options.advertised_address:
        values["advertisedAddress"] = options.advertised_address
    data = home / "data" / "standalone"
    config = standalone_config(values, data)
    data.mkdir(parents=True, exist_ok=True)
    if options.wipe_data:
        _wipe(data)
    logging.basicConfig(level=logging.INFO)
    set_format("text")
    if unknown := ignored(values):
        logger.info("settings without effect on an emulated region are ignored: %s", ", ".join(unknown))
    return serve(config, ready=_announce)


def _system_property(name: str) -> str:
    """Return the value that PULSAR_EXTRA_OPTS gives to a Java system property; empty: none."""
    found = ""
    for word in os.environ.get("PULSAR_EXTRA_OPTS", "").split():
        option, _, value = word.partition("=")
        found = value if option == f"-D{name}" else found
    return found


def _wipe(data: Path) -> None:
    for path in data.glob("*.sqlite*"):
        path.unlink()


def _announce() -> None:
    """Log the line that the Testcontainers module for Go waits for; it is true once the region serves."""
    logger.info("Successfully updated the policies on namespace %s", NAMESPACE)


def main(arguments: list[str]) -> int:
    """Run a command of Pulsar's script `pulsar`, and return its exit code."""
    home = Path(os.environ.get("PULSAR_HOME") or HOME)
    options = _parser(home).parse_args(arguments)
    if options.command == "version":
        print(f"geoemu {__version__}")
        return 0
    try:
        if options.command == "tokens":
            run_token_command(options)
            return 0
        return _standalone(options, home)
    except (OSError, ValueError) as problem:
        print(f"geoemu: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
