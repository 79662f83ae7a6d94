"""Generate the reference pages of docs/reference/ from the code: `make docs`.

The pages are part of the repository, so that they can be read without a build; `tests/test_reference.py` compares them
with the code. tests/swarm writes the pages with results of the swarm (mutants, workloads).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from emulator.broker.admin.exposition import MetricFamily
from emulator.broker.admin.region_metrics import families_of
from emulator.broker.admin.resource import Operation
from emulator.broker.admin.resources import SUBJECTS
from emulator.cli.verbs import app
from emulator.client import InitialPosition
from emulator.config import link_profiles, shapes
from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.topology import ClusterSpec
from emulator.errors import MEANINGS, ServerError
from emulator.model.reasons import Question, rows_of
from emulator.runtimes.fault_table import FAULTS, RUNTIME_NAMES
from emulator.simulation.world import World, simple_topology
from scripts import authorization_table, sbom, scenario_table
from spark_jobs.sources.export_folder import SCHEMA_VERSION
from spark_jobs.tables.schema import TABLES

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = ROOT / "docs" / "reference"
SCHEMAS: Final = ROOT / "emulator" / "schemas"
METRICS_SETTINGS: Final = BrokerSettings(
    transaction_coordinators=1, configuration_metadata_sync_event_topic="persistent://public/default/events"
)
NOTE: Final = "<!-- Generated from the code by `make docs`. Do not edit. -->"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


def pages() -> dict[str, str]:
    """Return the text of each page, by file name."""
    return {
        "command-line.md": _page("Command line", _command_line()),
        "scenario.md": _page("Keys of a scenario file", _schema("scenario")),
        "scenarios.md": _page("Shipped scenarios", scenario_table.lines()),
        "topology.md": _page("Keys of a topology", _topology()),
        "admin-api.md": _page("Paths of the admin API", _admin_api()),
        "authorization.md": _page("Permissions of roles", authorization_table.lines()),
        "metrics.md": _page("Metrics", _metrics()),
        "licences.md": _page(
            "Licences of packages", _table("package", "version", "licence", rows=sbom.licences())
        ),
        "faults.md": _page("Faults", _faults()),
        "reasons.md": _page("Reasons", _reasons()),
        "errors.md": _page("Error codes of the binary protocol", _errors()),
        "tables.md": _page("Tables of a run", _tables()),
    }


def _page(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"# {title}", "", NOTE, "", *lines]).rstrip() + "\n"


def _table(*head: str, rows: Iterable[Iterable[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(_cell(one) for one in row)} |" for row in rows), ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# The command line.


def _command_line() -> Iterator[str]:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    for name, command in sorted(root.commands.items()):
        yield from _command(f"geoemu {name}", command)


def _command(name: str, command: Any) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for verb, inner in sorted(command.commands.items()):
            yield from _command(f"{name} {verb}", inner)
        return
    assert isinstance(command, TyperCommand)
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [
        one for one in command.params if one.param_type_name == "option" and not getattr(one, "hidden", False)
    ]
    yield from [f"## {' '.join([name, *map(_argument, arguments)])}", ""]
    yield from [*(command.help or "").replace("\b\n", "").split("\n"), ""]
    rows = [(f"`{_argument(one)}`", _help(one)) for one in arguments]
    rows += [(", ".join(f"`{opt}`" for opt in one.opts), _help(one)) for one in options]
    yield from _table("argument or option", "meaning", rows=rows)
    if command.epilog:
        yield from [command.epilog, ""]


def _help(parameter: Any) -> str:
    """With the default, unless the help names it or there is none."""
    text = getattr(parameter, "help", None) or ""
    default = parameter.default
    if default in (None, False, "", ()) or callable(default) or "efault" in text:
        return text
    return f"{text} Default: {default}."


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).strip("{}").upper()
    shown = f"{name.rstrip('.')}..." if parameter.nargs == -1 else name
    return shown if parameter.required else f"[{shown}]"


# Files, by their JSON schemas.


def _topology() -> Iterator[str]:
    """Return the keys of the topology file and of the cluster file, without repeating their common definitions, and the
    values that `profile` and `shape` stand for."""
    known = _document("topology")["$defs"]
    return chain(_schema("topology"), _schema("cluster", known=known), _link_profiles(), _shapes())


def _link_profiles() -> Iterator[str]:
    yield from [
        "## Link profiles",
        "",
        "One direction of a link. Latencies are half of the published round trip.",
        "",
    ]
    rows = (
        (f"`{name}`", profile.meaning, *_link_values(profile.shape), profile.source)
        for name, profile in link_profiles.PROFILES.items()
    )
    yield from _table(
        "`profile`", "link", "latency", "jitter", "bandwidth", "source of the values", rows=rows
    )


def _link_values(shape: LinkShape) -> Iterator[str]:
    limit = shape.bandwidth_bytes_per_second
    yield from (f"{shape.latency_ms:g} ms", f"up to {shape.jitter_ms:g} ms")
    yield "unlimited" if limit is None else f"{limit * 8 / 1e6:g} Mbit/s"


def _shapes() -> Iterator[str]:
    yield from ["## Shapes", "", *(shapes.__doc__ or "").split("\n\n")[1:]]
    rows = ((f"`{name}`", shape.links, shape.use) for name, shape in shapes.SHAPES.items())
    yield from _table("`shape`", "direct links, and routes of the others", "use", rows=rows)


def _document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return document


def _schema(name: str, known: Iterable[str] = ()) -> Iterator[str]:
    document = _document(name)
    yield from _object(f"{name.capitalize()} file", document)
    for definition, schema in sorted(document.get("$defs", {}).items()):
        if definition in known:
            continue
        if "properties" in schema:
            yield from _object(definition, schema)
        else:
            yield from [f"## {definition}", "", f"{_sentence(schema)} {_capital(_type(schema))}.".strip(), ""]


def _object(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    yield from [f"## {title}", "", _sentence(schema), ""]
    yield from _table(
        "key",
        "value",
        "default",
        "meaning",
        rows=(
            (
                f"`{key}`",
                _type(value),
                "required" if key in required else _default(value),
                value.get("description", ""),
            )
            for key, value in schema["properties"].items()
        ),
    )


def _sentence(schema: Mapping[str, Any]) -> str:
    return " ".join(schema.get("description", "").split())


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    return "" if default is None or default in ([], {}) else f"`{json.dumps(default)}`".replace('"', "")


def _type(schema: Mapping[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_type(one) for one in choices if one.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object":
            return "mapping" if "properties" not in schema else _mapping(schema)
        case "string" if schema.get("examples"):
            return f"`{schema['examples'][0]}`"
        case "integer" | "number" as kind:
            return f"{kind}{_range(schema)}"
        case None:
            return "any"
        case kind:
            return str(kind)


def _mapping(schema: Mapping[str, Any]) -> str:
    inside = ", ".join(f"`{key}`: {_type(value)}" for key, value in schema["properties"].items())
    return f"{{{inside}}}"


def _range(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    match least, most:
        case None, None:
            return ""
        case _, None:
            return f", at least {least:,}"
        case None, _:
            return f", at most {most:,}"
    return f", {least:,} to {most:,}"


# The rest.


def _tables() -> Iterator[str]:
    yield from [
        "The tables of the Spark data source `geoemu` and of `geoemu export` ([SPARK.md](../SPARK.md#tables-of-a-run))."
        f" Version of the schema: {SCHEMA_VERSION}. Any column may be null where its meaning does not apply.",
        "",
    ]
    for table in TABLES.values():
        yield from [
            f"## {table.name}",
            "",
            f"A row is {table.rows}. Divided by `{table.partitioned_by}`.",
            "",
        ]
        rows = ((f"`{one.name}`", f"`{one.type}`", one.meaning) for one in table.columns)
        yield from _table("column", "type", "meaning", rows=rows)


def _admin_api() -> Iterator[str]:
    yield from [
        "The rules of all paths: [ADMIN.md](../ADMIN.md). The permission is required in regions with authorization.",
        "",
        "## Stored without effect",
        "",
    ]
    stored_only = {
        resource.path: resource.stored_only for resources in SUBJECTS.values() for resource in resources
    }
    yield from _table(
        "path", "why it has no effect", rows=((f"`{path}`", why) for path, why in stored_only.items() if why)
    )
    for subject, resources in SUBJECTS.items():
        yield from [f"## {subject}", ""]
        rows = (
            (method, f"`{resource.path}`", resource.permission_of(operation).value, _operation(operation))
            for resource in resources
            for method, operation in resource.operations.items()
        )
        yield from _table("method", "path", "permission", "what it does", rows=rows)


def _operation(operation: Operation) -> str:
    parameters = "".join(f" `?{parameter.name}`: {parameter.doc}" for parameter in operation.query)
    fields = operation.body.schema.get("properties", {}) if operation.body is not None else {}
    body = f" Body: JSON with {', '.join(f'`{name}`' for name in fields)}." if fields else ""
    return operation.doc + parameters + body


def _metrics() -> Iterator[str]:
    """Return the metrics of a simulated region whose topic has a producer, a consumer, a replicator and a
    transaction."""
    spec = simple_topology(("us-east", "us-west"), settings=METRICS_SETTINGS)
    (cluster,) = spec.clusters
    alone = tuple(ClusterSpec(one.name, (replace(one, cluster=one.name),)) for one in cluster.regions)
    simulated = World(replace(spec, clusters=alone))
    try:
        families = simulated.play(_families(simulated))
    finally:
        simulated.close()
    yield "Names, kinds and labels of a region's metrics (`/metrics`). Pulsar's names have Pulsar's meaning."
    yield ""
    rows = ((f"`{one.name}`", one.kind, ", ".join(_labels(one)), one.help) for one in families)
    yield from _table("metric", "kind", "labels", "meaning", rows=rows)


async def _families(simulated: World) -> list[MetricFamily]:
    client = simulated.client("us-east")
    consumer = await client.subscribe(
        "orders", "billing", initial_position=InitialPosition.EARLIEST, replicated=True
    )
    producer = await client.producer("orders")
    transaction = await client.new_transaction()
    await producer.send(b"x", transaction=transaction)
    await transaction.commit()
    await consumer.acknowledge(await consumer.receive())
    await client.subscribe("non-persistent://public/default/alarms", "screen")
    await client.producer("non-persistent://public/default/alarms")
    await simulated.quiet()
    region = simulated.regions["us-east"].broker
    assert region is not None
    return sorted(await families_of(region), key=lambda one: one.name)


def _labels(family: MetricFamily) -> list[str]:
    return list(dict.fromkeys(name for labels, _, _ in family.samples for name, _ in labels))


def _faults() -> Iterator[str]:
    """Yield the table fault x runtime: the test that shows the fault there, or the reason why it has none."""
    yield "Each fault is a scenario step, a command, and a method of the Python API."
    yield "Ends of links are regions, lists, patterns such as `eu-*`, or `clients`."
    yield ""
    yield f"| fault | effect | ended by | {' | '.join(RUNTIME_NAMES)} |"
    yield "|---|---|---|" + "---|" * len(RUNTIME_NAMES)
    for verb, row in FAULTS.items():
        cells = " | ".join(_fault_cell(row.cells[runtime]) for runtime in RUNTIME_NAMES)
        yield f"| `{verb}` | {row.summary} | {f'`{row.ended_by}`' if row.ended_by else ''} | {cells} |"


def _fault_cell(cell: str) -> str:
    """Return a link to the test, or the reason."""
    path, _, name = cell.partition("::")
    return f"[test](../../{path} '{name}')" if name else cell


def _reasons() -> Iterator[str]:
    yield "Each sentence that `explain`, the statistics and `status` give as a reason, and its condition."
    yield "Details are in italics; [explain.md](../components/explain.md) has the rules."
    for question in Question:
        yield from ["", f"## {_capital(question.value)}", ""]
        rows = ((f"`{row.code}` {_details(row.text)}", _details(row.when)) for row in rows_of(question))
        yield from _table("reason", "condition", rows=rows)


def _details(text: str) -> str:
    """Return the text with each detail in braces replaced by its name in italics."""
    return re.sub(r"\{(\w+)[^}]*\}", r"*\1*", text)


def _errors() -> Iterator[str]:
    rows = ((str(code.value), f"`{code.name}`", MEANINGS[code]) for code in ServerError)
    yield from _table("number", "code", "a region sends it when", rows=rows)


if __name__ == "__main__":
    main()
