"""`geoemu env`: the addresses of a region as environment variables, for a shell, a dotenv file, or as JSON."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

import typer

from emulator.cli.application import app, open_run_of
from emulator.cli.options import Region, RunDir
from emulator.errors import Refused
from emulator.run.directory import refuse_unknown
from emulator.runtimes.contract import RegionStatus, RunStatus

Format = Annotated[
    Literal["shell", "dotenv", "json"],
    typer.Option("--format", help="shell: export commands; dotenv: lines of an .env file; json: one object."),
]


def _actor(text: str) -> str:
    if not re.fullmatch(r"\w[-.\w]*", text):
        raise typer.BadParameter(f"{text[:60]!r} is no file name of letters, digits, '-', '_' and '.'")
    return text


Actor = Annotated[
    str | None,
    typer.Option(
        "--actor",
        metavar="NAME",
        parser=_actor,
        help="Also set GEOEMU_ACTOR, the name under which the program is recorded.",
    ),
]


@app.command(
    epilog='Example: geoemu env us-east --format dotenv > .env; in a shell: eval "$(geoemu env us-east)"',
)
def env(region: Region, form: Format = "shell", actor: Actor = None, run_dir: RunDir = None) -> None:
    """Print the addresses of a region as environment variables for programs: GEOEMU_SERVICE_URL and others, and the
    names that Pulsar programs, Spring Boot and Quarkus read."""
    status = asyncio.run(open_run_of(run_dir).status())
    print(_FORMATS[form](client_variables(status, region, actor)))


def client_variables(status: RunStatus, region: str, actor: str | None) -> dict[str, str]:
    """Return the variables of a region by name. Raises Refused for an unknown region, or one without an address."""
    from emulator.recording.context import environment_variables

    known = {one.name: one for one in status.regions}
    refuse_unknown("region", region, known)
    if not known[region].service_url:
        raise Refused(f"{region} is {known[region].state} and has no address")
    own = environment_variables(status.run_dir, actor, region, status.regions)
    return own | _conventional_names(known[region])


def _conventional_names(region: RegionStatus) -> dict[str, str]:
    """Return the variables that programs read by convention; Pulsar's client libraries read none themselves.

    Spring Boot derives names from its properties without their dashes, Quarkus with every other sign as `_`."""
    service, admin = region.service_url, region.admin_url
    return {
        "PULSAR_SERVICE_URL": service,
        "PULSAR_ADMIN_URL": admin,
        "SPRING_PULSAR_CLIENT_SERVICEURL": service,
        "SPRING_PULSAR_ADMIN_SERVICEURL": admin,
        "PULSAR_CLIENT_SERVICEURL": service,
    }


_PLAIN: Final = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
"""Values that need no quotes in a dotenv file; `docker run --env-file` takes quotes as part of the value."""


def _as_shell(variables: Mapping[str, str]) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _as_dotenv(variables: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={_dotenv_value(value)}" for name, value in variables.items())


def _dotenv_value(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = re.sub(r'(["\\$])', r"\\\1", value).replace("\n", r"\n")
    return f'"{escaped}"'


def _as_json(variables: Mapping[str, str]) -> str:
    return json.dumps(variables, indent=1)


_FORMATS: Final[Mapping[str, Callable[[Mapping[str, str]], str]]] = {
    "shell": _as_shell,
    "dotenv": _as_dotenv,
    "json": _as_json,
}
