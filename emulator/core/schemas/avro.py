"""Avro schemas: parsed and compared by Apache's library, which is imported when the first schema needs it.

The library does not bound its input. Schemas that are too deep or too large are rejected before they are parsed, and a
comparison that takes too many steps is aborted.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from emulator.core.schemas.json_text import BadSchema, Incompatible, read_json

if TYPE_CHECKING:
    from avro.schema import Schema as AvroSchema

FIELDS_MAX = 2_000
"""Maximum number of fields of a record, and of symbols of an enum: parsing and comparing take quadratic time."""
BRANCHES_MAX = 200
"""Maximum number of branches of a union, and of aliases of a name."""
_LISTS = {
    "fields": FIELDS_MAX,
    "symbols": FIELDS_MAX,
    "type": BRANCHES_MAX,
    "items": BRANCHES_MAX,
    "values": BRANCHES_MAX,
    "aliases": BRANCHES_MAX,
}
STEPS_MAX = 20_000
"""Maximum number of pairs of types that one comparison visits, about 10 µs each. Two schemas of the maximum size need
half as many; only unions of many similar records need more."""
REASONS_MAX = 10
"""Maximum number of reasons reported per record."""


def parse_avro(data: bytes) -> AvroSchema:
    """Parse an Avro schema. Raises BadSchema for data that is no Avro schema, and for one that exceeds a limit."""
    described = read_json(data)
    _check_sizes(described)
    from avro.schema import make_avsc_object

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about unknown logical types
            return make_avsc_object(described)
    except RecursionError:
        raise BadSchema("its types refer to each other too deeply") from None
    except _library_errors() as problem:
        raise BadSchema(f"not an Avro schema: {_short(str(problem))}") from None


@cache
def _library_errors() -> tuple[type[Exception], ...]:
    """Return the errors that the library raises for an unexpected schema, when parsing or when comparing it."""
    from avro.errors import AvroException

    return (AvroException, TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


def _check_sizes(described: Any) -> None:
    waiting = [("type", described)]
    while waiting:
        key, part = waiting.pop()
        if isinstance(part, list):
            maximum = _LISTS.get(key)
            if maximum is not None and len(part) > maximum:
                raise BadSchema(f"{key}: {len(part):,} in one list; {maximum:,} are allowed")
            waiting += [("type", one) for one in part]
        elif isinstance(part, dict):
            waiting += [(name, value) for name, value in part.items() if name != "default"]


def check_reads(reader: AvroSchema, writer: AvroSchema) -> None:
    """Check that `reader` can read all data written with `writer`. Raises Incompatible if it cannot, and BadSchema if
    the comparison takes too long or fails."""
    try:
        found = _first_problem(_checker_type()().get_compatibility(reader, writer))
    except RecursionError:
        raise BadSchema("its types refer to each other too deeply") from None
    except BadSchema:
        raise
    except _library_errors() as problem:
        raise BadSchema(f"Avro cannot compare it: {_short(str(problem))}") from None
    if found:
        raise Incompatible(_short(found))


@cache
def _checker_type() -> type[Any]:
    """Return a subclass of Avro's compatibility checker with limits. Imports the library at the first call."""
    from avro.compatibility import (
        CompatibleResult,
        ReaderWriterCompatibilityChecker,
        SchemaCompatibilityResult,
        SchemaCompatibilityType,
        SchemaIncompatibilityType,
        incompatible,
        merge,
    )

    class Bounded(ReaderWriterCompatibilityChecker):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.steps = 0

        def calculate_compatibility(self, reader: Any, writer: Any, location: list[str]) -> Any:
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise BadSchema("comparing it takes too long: its unions have too many types that are alike")
            if reader.type == writer.type == "record":
                # Record names are ignored, as by schema resolution in Java, and so in Pulsar.
                return self.check_reader_writer_record_fields(reader, writer, location)
            return super().calculate_compatibility(reader, writer, location)

        def check_reader_writer_record_fields(self, reader: Any, writer: Any, location: list[str]) -> Any:
            """Check the fields of a record as the library does, but with one index of the writer's fields. The library
            builds an index and copies all earlier reasons per field: seconds for records that are often referenced."""
            by_name, result, incompatible_fields = writer.fields_dict, CompatibleResult, 0
            for at, field in enumerate(reader.fields):
                found = self._field(field, by_name, writer, [*location, "fields", str(at)])
                if found.compatibility is not SchemaCompatibilityType.compatible:
                    result, incompatible_fields = merge(result, found), incompatible_fields + 1
                    if incompatible_fields == REASONS_MAX:
                        break
            return SchemaCompatibilityResult(
                result.compatibility,
                result.incompatibilities[:REASONS_MAX],
                set(sorted(result.messages)[:REASONS_MAX]),
                set(sorted(result.locations)[:REASONS_MAX]),
            )

        def _field(self, field: Any, by_name: dict[str, Any], writer: Any, location: list[str]) -> Any:
            names = [field.name, *(field.props.get("aliases") or ())]
            written = next((by_name[name] for name in names if name in by_name), None)
            if written is not None:
                return self.get_compatibility(field.type, written.type, "type", location)
            if field.has_default:
                return CompatibleResult
            if field.type.type == "enum" and field.type.props.get("default"):
                return self.get_compatibility(field.type, writer, "type", location)
            missing = SchemaIncompatibilityType.reader_field_missing_default_value
            return incompatible(missing, field.name, location)

    return Bounded


def _first_problem(result: Any) -> str:
    """Return why the reader cannot read data of the writer; empty if it can."""
    if result.compatibility.name == "compatible":
        return ""
    reasons = sorted({one.name.replace("_", " ") for one in result.incompatibilities})
    return (
        f"{', '.join(reasons)}: {'; '.join(sorted(result.messages))} at {', '.join(sorted(result.locations))}"
    )


def _short(sentence: str) -> str:
    return sentence if len(sentence) <= 300 else sentence[:300] + " …"
