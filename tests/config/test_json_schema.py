"""The JSON schemas for editors match the checks of the program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from emulator.config.json_schema import SCHEMAS_DIR, schemas

ROOT = Path(__file__).parents[2]
ZERO = re.compile(r"(?<![\d.,])0: ")
"""Meaning of 0 in the description of a field."""


@pytest.mark.parametrize("name", ["topology.schema.json", "cluster.schema.json"])
def test_the_shipped_schema_is_current(name: str) -> None:
    assert (SCHEMAS_DIR / name).read_text() == schemas()[name], "run: python -m emulator.config.json_schema"


def test_zero_is_valid_wherever_a_description_gives_it_a_meaning() -> None:
    fields = [
        (name, field)
        for file in ("topology.schema.json", "cluster.schema.json")
        for part in json.loads((SCHEMAS_DIR / file).read_text())["$defs"].values()
        for name, field in part.get("properties", {}).items()
    ]
    described = {
        name: field["minimum"] for name, field in fields if ZERO.search(field.get("description", ""))
    }
    assert {"topic_idle_ms", "exclusive_grace_period_ms", "transaction_coordinators"} <= described.keys()
    assert {name: least for name, least in described.items() if least > 0} == {}


def errors(schema: str, text: str) -> list[str]:
    validator = Draft202012Validator(json.loads((SCHEMAS_DIR / schema).read_text()))
    return [error.json_path for error in validator.iter_errors(yaml.safe_load(text))]


def test_the_samples_are_what_their_schemas_say() -> None:
    assert errors("topology.schema.json", (ROOT / "topology.yaml").read_text()) == []
    for path in (ROOT / "clusters").glob("*.yaml"):
        assert errors("cluster.schema.json", path.read_text()) == []


@pytest.mark.parametrize(
    "path", [ROOT / "topology.yaml", *(ROOT / "clusters").glob("*.yaml")], ids=lambda p: p.name
)
def test_the_samples_name_a_schema_that_is_there(path: Path) -> None:
    first_line = path.read_text().splitlines()[0]
    assert (path.parent / first_line.removeprefix("# yaml-language-server: $schema=")).is_file()


@pytest.mark.parametrize(
    ("schema", "text", "place"),
    [
        ("topology.schema.json", "{clusters: [a], tenats: [b]}", "$"),
        ("topology.schema.json", "{clusters: [a], runtime: proces}", "$.runtime"),
        ("topology.schema.json", "{clusters: [../a]}", "$.clusters[0]"),
        ("topology.schema.json", "{clusters: [a], namespaces: {orders: {}}}", "$.namespaces"),
        ("topology.schema.json", "{clusters: [a], namespaces: {a/b: {regions: []}}}", "$.namespaces"),
        ("topology.schema.json", "{clusters: [a], links: {exceptions: [{between: [a]}]}}", "$.links"),
        ("topology.schema.json", '{clusters: [a], links: {defaults: {latency_ms: "20"}}}', "$.links"),
        ("cluster.schema.json", "{regions: {}}", "$.regions"),
        ("cluster.schema.json", "{regions: {a: {service_port: 65536}}}", "$.regions.a"),
        ("cluster.schema.json", "{regions: {a: }, log: {backend: sqlit}}", "$.log"),
        ("cluster.schema.json", "{regions: {a: }, settings: {snapshot_cache_size: 0}}", "$.settings"),
    ],
)
def test_an_editor_underlines_what_the_check_refuses(schema: str, text: str, place: str) -> None:
    assert errors(schema, text) == [place]


def test_everything_that_may_be_written_is_described() -> None:
    for name, text in schemas().items():
        schema = json.loads(text)
        parts = [schema, *schema["$defs"].values()]
        undescribed = [
            key
            for part in parts
            for key, value in part["properties"].items()
            if "description" not in value and part is not schema["$defs"].get("Settings")
        ]
        assert undescribed == [], name
