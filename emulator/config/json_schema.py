"""The JSON Schemas of `topology.yaml` and `clusters/*.yaml`, for editors. They are generated and shipped.

python -m emulator.config.json_schema      # writes emulator/schemas/topology.schema.json and cluster.schema.json
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from emulator.config.broker_settings import BrokerSettings
from emulator.config.models import ClusterFile, TopologyFile

SCHEMAS_DIR = Path(__file__).parents[1] / "schemas"
_MODELS: dict[str, type[BaseModel]] = {
    "topology.schema.json": TopologyFile,
    "cluster.schema.json": ClusterFile,
}


def schemas() -> dict[str, str]:
    """Return file name -> text of all schemas."""
    return {name: json.dumps(_schema(model), indent=2) + "\n" for name, model in _MODELS.items()}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    raw = model.model_json_schema()
    for name, description in _field_docstrings(BrokerSettings).items():
        raw["$defs"]["Settings"]["properties"][name]["description"] = description
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_simplified(raw)}


def _simplified(part: Any) -> Any:
    """Return a schema without titles and null defaults, which rejects keys that match no pattern."""
    if isinstance(part, list):
        return [_simplified(item) for item in part]
    if not isinstance(part, dict):
        return part
    is_schema = "type" in part or "anyOf" in part or "$ref" in part
    simplified = {
        key: _simplified(value)
        for key, value in part.items()
        if not (is_schema and key == "title") and not (is_schema and key == "default" and value is None)
    }
    if "patternProperties" in part:
        simplified["additionalProperties"] = False
    return simplified


def _field_docstrings(dataclass_type: type) -> dict[str, str]:
    """Return field -> docstring of a dataclass."""
    definition = ast.parse(inspect.getsource(dataclass_type)).body[0]
    assert isinstance(definition, ast.ClassDef)
    return {
        node.target.id: inspect.cleandoc(below.value.value)
        for node, below in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def main() -> None:
    for name, text in schemas().items():
        (SCHEMAS_DIR / name).write_text(text)


if __name__ == "__main__":
    main()
