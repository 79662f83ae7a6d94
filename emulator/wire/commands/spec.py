"""Declare a command as a class whose fields are the fields of its protobuf body.

    @command(CommandType.LOOKUP)
    class Lookup(Command):
        request_id: int
        topic: str
        listener_name: Annotated[str, "advertised_listener_name"] = ""

`encode` and `read` are derived from the fields. A field without a default is always written; a field with its default
value is left out. `X | None` distinguishes an absent field. `Annotated` gives the name of the protobuf field where it
differs, dotted inside a nested message. The types of `CONVERTERS` are converted; unknown protobuf fields are ignored.
"""

import types
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from emulator.errors import ProtocolError
from emulator.model.values import Position, Schema, SchemaType
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.frames import simple_frame
from emulator.wire.protobuf import BODY_NAMES, MASK_64, decode_command


class RequestCommand(Protocol):
    """A request, whose response has the same request id."""

    @property
    def request_id(self) -> int: ...

    def encode(self) -> bytes: ...


class MessageIdData(NamedTuple):
    """A message id; ledger and entry are signed, (-1, -1) is the earliest position."""

    ledger: int
    entry: int
    batch_index: int | None = None
    partition: int | None = None
    ack_set: tuple[int, ...] = ()

    @property
    def position(self) -> Position:
        return Position(self.ledger, self.entry)

    @property
    def index_in_batch(self) -> int:
        """Batch index; -1: not part of a batch."""
        return -1 if self.batch_index is None else self.batch_index


def signed(number: int) -> int:
    """Return the signed value of a u64: the protocol writes -1 as 2**64 - 1."""
    return number - 2**64 if number >= 2**63 else number


class Converter(NamedTuple):
    """Conversion between the values of a protobuf field and of a command's field."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None


SIGNED_64: Final = Converter(signed, lambda value: value & MASK_64)


def _read_position(message_id: Any) -> Position:
    return Position(signed(message_id.ledgerId), signed(message_id.entryId))


def _write_position(position: Position) -> Any:
    return pb.MessageIdData(ledgerId=position.ledger & MASK_64, entryId=position.entry & MASK_64)


def _read_message_id(message_id: Any) -> MessageIdData:
    return MessageIdData(
        *_read_position(message_id),
        message_id.batch_index if message_id.HasField("batch_index") else None,
        message_id.partition if message_id.HasField("partition") else None,
        tuple(message_id.ack_set),
    )


def _write_message_id(message_id: MessageIdData) -> Any:
    ledger, entry, batch_index, partition, ack_set = message_id
    return pb.MessageIdData(
        ledgerId=ledger & MASK_64,
        entryId=entry & MASK_64,
        batch_index=batch_index,
        partition=partition,
        ack_set=ack_set,
    )


def _read_schema(schema: Any) -> Schema:
    return Schema(SchemaType(schema.type), schema.schema_data, _read_pairs(schema.properties))


def _write_schema(schema: Schema) -> Any:
    return {
        "name": schema.type.name,
        "type": int(schema.type),
        "schema_data": schema.data,
        "properties": _write_pairs(dict(schema.properties)),
    }


def _read_pairs(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs}


def _write_pairs(pairs: dict[str, str]) -> list[Any]:
    return [pb.KeyValue(key=key, value=value) for key, value in pairs.items()]


CONVERTERS: Final[dict[Any, Converter]] = {
    Position: Converter(_read_position, _write_position),
    MessageIdData: Converter(_read_message_id, _write_message_id),
    Schema: Converter(_read_schema, _write_schema),
    dict[str, str]: Converter(_read_pairs, _write_pairs),
    tuple[str, ...]: Converter(tuple, list),
    tuple[Position, ...]: Converter(
        lambda ids: tuple(map(_read_position, ids)), lambda ids: list(map(_write_position, ids))
    ),
    tuple[tuple[int, int], ...]: Converter(
        lambda ranges: tuple((one.start, one.end) for one in ranges),
        lambda ranges: [pb.IntRange(start=start, end=end) for start, end in ranges],
    ),
    tuple[tuple[str, str], ...]: Converter(
        lambda pairs: tuple((one.topic, one.subscription) for one in pairs),
        lambda pairs: [pb.Subscription(topic=topic, subscription=name) for topic, name in pairs],
    ),
}
"""Field type -> converter of its values. Pairs are hash ranges, or (topic, subscription) of a transaction."""


class _WireField(NamedTuple):
    attribute: str
    path: tuple[str, ...]
    """The names of the protobuf field, from the body inwards."""
    default: Any
    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None
    """Reads the value from the body; None: no conversion."""

    @property
    def is_plain(self) -> bool:
        """Whether the value is written without conversion, unless it is None."""
        return self.write is None and len(self.path) == 1 and (self.default in (None, _REQUIRED))


_REQUIRED: Final = object()


def _wire_field(declared: Field[Any]) -> _WireField:
    annotation: Any = declared.type
    path: tuple[str, ...] = (declared.name,)
    converter: Converter | None = None
    if get_origin(annotation) is Annotated:
        for extra in annotation.__metadata__:
            if isinstance(extra, str):
                path = tuple(extra.split("."))
            else:
                converter = extra
        annotation = annotation.__origin__
    is_optional = get_origin(annotation) is types.UnionType
    if is_optional:
        annotation = next(one for one in get_args(annotation) if one is not types.NoneType)
    if converter is None:
        converter = CONVERTERS.get(annotation)
    if converter is None and isinstance(annotation, type) and issubclass(annotation, Enum):
        converter = Converter(annotation, None if issubclass(annotation, int) else attrgetter("value"))
    default = declared.default
    if default is MISSING:
        default = _REQUIRED if declared.default_factory is MISSING else declared.default_factory()
    if is_optional and default is _REQUIRED:
        default = None
    write = None if converter is None else converter.write
    return _WireField(declared.name, path, default, write, _reader(path, converter, is_optional=is_optional))


def _reader(
    path: tuple[str, ...], converter: Converter | None, *, is_optional: bool
) -> Callable[[Any], Any] | None:
    get, convert = attrgetter(".".join(path)), None if converter is None else converter.read
    if is_optional:
        *outer, name = path
        holder = attrgetter(".".join(outer)) if outer else None

        def read_optional(body: Any) -> Any:
            if not (body if holder is None else holder(body)).HasField(name):
                return None
            return get(body) if convert is None else convert(get(body))

        return read_optional
    return None if convert is None else lambda body: convert(get(body))


class _Codec:
    """Encodes and reads the values of one command. Most fields are copied as they are, all at once."""

    def __init__(self, type_: int, declared: type[Any]) -> None:
        wire_fields = tuple(map(_wire_field, fields(declared)))
        self._declared = declared
        self._type = type_
        self._body = BODY_NAMES[type_]
        self._plain = [(one.path[0], one.attribute) for one in wire_fields if one.is_plain]
        self._written = [one for one in wire_fields if not one.is_plain]
        self._read_values = _all_of([".".join(one.path) for one in wire_fields])
        self._read = [(index, one.read) for index, one in enumerate(wire_fields) if one.read is not None]
        self.values = _all_of([one.attribute for one in wire_fields])

    def encode(self, command: Any) -> bytes:
        body: dict[str, Any] = {}
        for name, attribute in self._plain:
            value = getattr(command, attribute)
            if value is not None:
                body[name] = value
        for attribute, path, default, write, _ in self._written:
            value = getattr(command, attribute)
            if value == default:
                continue
            holder = body
            for name in path[:-1]:
                holder = holder.setdefault(name, {})
            holder[path[-1]] = value if write is None else write(value)
        base: dict[str, Any] = {"type": self._type, self._body: body}
        return simple_frame(pb.BaseCommand(**base))

    def read(self, data: bytes) -> Any:
        body = getattr(decode_command(data), self._body)
        values = list(self._read_values(body))
        for index, read in self._read:
            values[index] = read(body)
        return self._declared(*values)


def _all_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads several attributes at once."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda holder: ()
    get = attrgetter(names[0])
    return lambda holder: (get(holder),)


class Command:
    """A command outside of the hot paths. Subclasses are declared with `command`."""

    __slots__ = ()
    type_: ClassVar[int]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _codec: ClassVar[_Codec]

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Parse BaseCommand bytes. Raises ProtocolError, which closes the connection, for malformed ones."""
        return cast(Self, cls._codec.read(data))

    def encode(self) -> bytes:
        """Return the whole frame."""
        return self._codec.encode(self)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._codec.values(self) == self._codec.values(other)

    def __hash__(self) -> int:
        return hash(self._codec.values(self))

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__name__}({', '.join(values)})"


_Declared = TypeVar("_Declared", bound=type[Command])
COMMANDS: Final[dict[int, type[Command]]] = {}
"""The table of commands: type number -> class."""


@dataclass_transform(frozen_default=True)
def common_fields(declared: _Declared) -> _Declared:
    """Declare fields that several commands have. Only mypy ensures that commands are frozen, and only `__init__` is
    generated: generating all methods of a frozen dataclass for each command took a tenth of a region's start-up."""
    return cast(_Declared, dataclass(slots=True, eq=False, repr=False)(declared))


@dataclass_transform(frozen_default=True)
def command(type_: int) -> Callable[[_Declared], _Declared]:
    """Declare the command with this type number."""

    def declare(declared: _Declared) -> _Declared:
        made: Any = common_fields(declared)
        made.type_ = type_
        made._codec = _Codec(type_, made)
        COMMANDS[type_] = made
        return cast(_Declared, made)

    return declare


def error_fields(problem: ProtocolError) -> dict[str, Any]:
    """Return the fields `error` and `message` of a response that rejects a request."""
    return {"error": problem.code, "message": str(problem)}
