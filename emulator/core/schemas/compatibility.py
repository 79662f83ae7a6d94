"""Validation of schemas, and the check whether a new one is compatible with a topic's, by compatibility strategy.

`core.schemas.avro` compares Avro schemas. Of Protobuf descriptors only the name of the root message is compared, as in
Pulsar; `wire.protobuf.check_descriptors` validates the descriptors themselves.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from emulator.core.schemas.avro import check_reads, parse_avro
from emulator.core.schemas.json_text import BadSchema, Incompatible, read_json
from emulator.core.schemas.key_value import halves
from emulator.model.values import Schema, SchemaType


class CompatibilityStrategy(Enum):
    """Compatibility strategy, with Pulsar's names."""

    UNDEFINED = "UNDEFINED"
    """Not set: the strategy of the next wider level applies, and FULL if no level sets one."""
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    """No new schema is accepted."""
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    """Any new schema is accepted, of any type."""
    BACKWARD = "BACKWARD"
    """The new schema must read data of the newest version."""
    FORWARD = "FORWARD"
    """The newest version must read data of the new schema."""
    FULL = "FULL"
    """BACKWARD and FORWARD."""
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    """As BACKWARD, for all versions."""
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    """As FORWARD, for all versions."""
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    """As FULL, for all versions."""

    @property
    def is_transitive(self) -> bool:
        return self.name.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.name.startswith(("FORWARD", "FULL"))

    @property
    def for_consumers(self) -> CompatibilityStrategy:
        """Strategy for the schema of a consumer, which only reads (PIP-44): BACKWARD in place of FORWARD, FULL and
        FORWARD_TRANSITIVE; the same strategy for all others."""
        if self in _BACKWARD_FOR_CONSUMERS:
            return CompatibilityStrategy.BACKWARD
        return self


_BACKWARD_FOR_CONSUMERS = frozenset(
    {
        CompatibilityStrategy.BACKWARD,
        CompatibilityStrategy.FORWARD,
        CompatibilityStrategy.FORWARD_TRANSITIVE,
        CompatibilityStrategy.FULL,
    }
)
DEFAULT = CompatibilityStrategy.FULL
AUTO_UPDATE = {
    "AutoUpdateDisabled": CompatibilityStrategy.ALWAYS_INCOMPATIBLE,
    "Backward": CompatibilityStrategy.BACKWARD,
    "Forward": CompatibilityStrategy.FORWARD,
    "Full": CompatibilityStrategy.FULL,
    "AlwaysCompatible": CompatibilityStrategy.ALWAYS_COMPATIBLE,
    "BackwardTransitive": CompatibilityStrategy.BACKWARD_TRANSITIVE,
    "ForwardTransitive": CompatibilityStrategy.FORWARD_TRANSITIVE,
    "FullTransitive": CompatibilityStrategy.FULL_TRANSITIVE,
}
"""Value of the older policy `schema_auto_update_compatibility_strategy` -> strategy."""


AVRO_DESCRIBED = frozenset({SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF})
"""Types whose data is a JSON document, usually an Avro schema."""
_UNCHECKED_TYPES = frozenset({SchemaType.STRING, SchemaType.EXTERNAL})


def check_form(schema: Schema) -> None:
    """Raise BadSchema if the data of a schema is not valid for its type. Data of STRING and EXTERNAL is not checked."""
    match schema.type:
        case SchemaType.AVRO | SchemaType.PROTOBUF:
            avro = parse_avro(schema.data)
            if schema.type is SchemaType.AVRO and avro.type == "union":
                raise BadSchema("a union is not supported as the schema of a topic")
        case SchemaType.JSON:
            _check_json(schema.data)
        case SchemaType.KEY_VALUE:
            for half in halves(schema):
                if half.type is SchemaType.KEY_VALUE:
                    raise BadSchema("a key/value schema inside of another")
                check_form(half)
        case SchemaType.PROTOBUF_NATIVE:
            root_message(schema.data)
        case type_ if type_ not in _UNCHECKED_TYPES and schema.data:
            raise BadSchema(
                f"a schema of type {type_.name} has no data, but {len(schema.data):,} bytes were sent"
            )


def _check_json(data: bytes) -> None:
    try:
        parse_avro(data)
    except BadSchema:
        if not _is_json_schema(data):
            raise


def _is_json_schema(data: bytes) -> bool:
    """Whether the data is a JSON Schema, which clients sent for the type JSON before they sent Avro schemas. Raises
    BadSchema for data that is not JSON."""
    described = read_json(data)
    return isinstance(described, dict) and described.get("type") == "object"


def root_message(data: bytes) -> str:
    """Return the full name of the root message of a Protobuf descriptor. Raises BadSchema if there is none."""
    described = read_json(data)
    name: Any = described.get("rootMessageTypeName") if isinstance(described, dict) else None
    if not isinstance(name, str) or not name:
        raise BadSchema("rootMessageTypeName is missing")
    return name


def check_follows(old: Schema, new: Schema, strategy: CompatibilityStrategy) -> None:
    """Check that `new` may follow `old`, a schema that is not equivalent to it. Raises Incompatible, with the reason,
    if it may not; BadSchema if they cannot be compared."""
    if strategy is CompatibilityStrategy.ALWAYS_COMPATIBLE:
        return
    if strategy is CompatibilityStrategy.ALWAYS_INCOMPATIBLE:
        raise Incompatible("no new schema is allowed here (ALWAYS_INCOMPATIBLE)")
    if old.type is not new.type:
        raise Incompatible(f"exists schema type {old.type.name}, new schema type {new.type.name}")
    match new.type:
        case SchemaType.AVRO | SchemaType.PROTOBUF:
            _check_avro(old.data, new.data, strategy)
        case SchemaType.JSON:
            _check_json_follows(old.data, new.data, strategy)
        case SchemaType.KEY_VALUE:
            for name, old_half, new_half in zip(("key", "value"), halves(old), halves(new), strict=True):
                try:
                    check_follows(old_half, new_half, strategy)
                except Incompatible as problem:
                    raise Incompatible(f"{name}: {problem}") from None
        case SchemaType.PROTOBUF_NATIVE:
            _check_root(root_message(old.data), root_message(new.data))


def _check_avro(old: bytes, new: bytes, strategy: CompatibilityStrategy) -> None:
    old_avro, new_avro = parse_avro(old), parse_avro(new)
    if strategy.new_reads_old:
        check_reads(reader=new_avro, writer=old_avro)
    if strategy.old_reads_new:
        check_reads(reader=old_avro, writer=new_avro)


def _check_json_follows(old: bytes, new: bytes, strategy: CompatibilityStrategy) -> None:
    """Check two schemas of type JSON. Two Avro schemas are compared by the strategy, two JSON Schemas by their ids. As
    in Pulsar, either form may follow the other, because upgraded clients change the form."""
    old_is_json_schema, new_is_json_schema = _is_json_schema(old), _is_json_schema(new)
    if not old_is_json_schema and not new_is_json_schema:
        _check_avro(old, new, strategy)
    elif old_is_json_schema and new_is_json_schema:
        one, other = read_json(old).get("id"), read_json(new).get("id")
        if one != other:
            raise Incompatible(f"the schema's id was {one!r} and is {other!r}")


def _check_root(old: str, new: str) -> None:
    if old != new:
        raise Incompatible(f"the root message was {old} and is {new}")
