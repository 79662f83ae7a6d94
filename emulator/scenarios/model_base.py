"""What everything that stands in a scenario file has in common."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator

from emulator.scenarios.types import TimeSpan, lasting, rule


class Written(BaseModel):
    """Base of everything that stands in a scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    shorthand: ClassVar[str | None] = None
    """The field that may be written alone: `kill: us-east` is `kill: {region: us-east}`."""

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: Any) -> Any:
        if cls.shorthand is not None and value is not None and not isinstance(value, dict):
            return {cls.shorthand: value}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        if cls.shorthand is not None:
            field = {**schema["properties"][cls.shorthand]}
            whole = {key: schema.pop(key) for key in list(schema) if key not in ("title", "description")}
            schema["anyOf"] = [field, whole]
        return schema


class Deadline(Written):
    within: TimeSpan = lasting("10s")
    """Time after which the step fails."""


_W = TypeVar("_W", bound=Written)


def exactly_one(written: _W, *fields: str) -> _W:
    if sum(getattr(written, field) is not None for field in fields) != 1:
        raise rule(f"must have exactly one of {', '.join(fields)}")
    return written
