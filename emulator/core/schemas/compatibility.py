"""Validate schemas and check whether a new one may follow those a topic has, by compatibility strategy.

`avro` decides what reads what. Protobuf descriptors are read by `wire.descriptors`; here only the name of the root
message matters, as in Pulsar.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from emulator.core.schemas.avro import check_reads, parse_avro
from emulator.core.schemas.json_text import BadSchema, Incompatible, read_json
from emulator.core.schemas.key_value import halves
from emulator.model.values import Schema, SchemaType


class CompatibilityStrategy(Enum):
    """As Pulsar names them."""

    UNDEFINED = "UNDEFINED"
    """Not set: what a wider place says, and FULL where none says anything."""
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    """No new schema at all."""
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    """Any new schema, of any type."""
    BACKWARD = "BACKWARD"
    """The new schema reads what was written with the newest there is."""
    FORWARD = "FORWARD"
    """The newest there is reads what is written with the new one."""
    FULL = "FULL"
    """Both."""
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    """As BACKWARD, with all there are."""
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

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
        """What a consumer's schema is held to (PIP-44): it only reads. Under BACKWARD_TRANSITIVE and FULL_TRANSITIVE
        all versions count."""
        if self in _CONSUMERS_READ_THE_NEWEST:
            return CompatibilityStrategy.BACKWARD
        return self


_CONSUMERS_READ_THE_NEWEST = frozenset(
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
"""What older tools call them."""


AVRO_DESCRIBED = frozenset({SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF})
_MAY_SAY_ANYTHING = frozenset({SchemaType.STRING, SchemaType.EXTERNAL})


def check_form(schema: Schema) -> None:
    """BadSchema when its data is not what its type is written in."""
    match schema.type:
        case SchemaType.AVRO | SchemaType.PROTOBUF:
            avro = parse_avro(schema.data)
            if schema.type is SchemaType.AVRO and avro.type == "union":
                raise BadSchema("a union is not offered as the schema of a topic")
        case SchemaType.JSON:
            _check_json(schema.data)
        case SchemaType.KEY_VALUE:
            for half in halves(schema):
                if half.type is SchemaType.KEY_VALUE:
                    raise BadSchema("a key/value schema inside of another")
                check_form(half)
        case SchemaType.PROTOBUF_NATIVE:
            root_message(schema.data)
        case type_ if type_ not in _MAY_SAY_ANYTHING and schema.data:
            raise BadSchema(
                f"a schema of type {type_.name} has no data, but {len(schema.data):,} bytes were sent"
            )


def _check_json(data: bytes) -> None:
    try:
        parse_avro(data)
    except BadSchema:
        if not _is_old_json(data):
            raise


def _is_old_json(data: bytes) -> bool:
    """JSON Schema, by which clients described JSON before they took Avro's form."""
    described = read_json(data)
    return isinstance(described, dict) and described.get("type") == "object"


def root_message(data: bytes) -> str:
    """Full name of the message that a Protobuf descriptor is about. BadSchema."""
    described = read_json(data)
    name: Any = described.get("rootMessageTypeName") if isinstance(described, dict) else None
    if not isinstance(name, str) or not name:
        raise BadSchema("rootMessageTypeName is missing")
    return name


def check_follows(old: Schema, new: Schema, strategy: CompatibilityStrategy) -> None:
    """Incompatible, with the reason, when `new` may not follow `old`; they are different. BadSchema."""
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
    """Each of the two forms may follow the other, as in Pulsar: clients change the form when they are renewed."""
    old_is_old_form, new_is_old_form = _is_old_json(old), _is_old_json(new)
    if not old_is_old_form and not new_is_old_form:
        _check_avro(old, new, strategy)
    elif old_is_old_form and new_is_old_form:
        one, other = read_json(old).get("id"), read_json(new).get("id")
        if one != other:
            raise Incompatible(f"the schema's id was {one!r} and is {other!r}")


def _check_root(old: str, new: str) -> None:
    if old != new:
        raise Incompatible(f"the root message was {old} and is {new}")
