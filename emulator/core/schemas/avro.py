"""Avro: read and compared by Apache's own library, which is imported by the first schema that needs it.

The library trusts what it is given. What could make it recurse or compute without end is refused before it sees it, and
a comparison that takes too many steps is given up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from emulator.core.schemas.json_text import read_json
from emulator.core.schemas.problems import BadSchema, Incompatible

if TYPE_CHECKING:
    from avro.schema import Schema as AvroSchema

FIELDS_MAX = 2_000
"""Of one record, symbols of one enum: reading and comparing take time by their square."""
BRANCHES_MAX = 200
"""Of one union."""
_LISTS = {
    "fields": FIELDS_MAX,
    "symbols": FIELDS_MAX,
    "type": BRANCHES_MAX,
    "items": BRANCHES_MAX,
    "values": BRANCHES_MAX,
}
STEPS_MAX = 20_000
"""Pairs of types that one comparison looks at, some 10 µs each. Two schemas as large as is allowed need half as many;
more are needed by unions of records that are all alike."""


def parse_avro(data: bytes) -> AvroSchema:
    """BadSchema for what is no Avro schema."""
    described = read_json(data)
    _check_sizes(described)
    from avro.errors import AvroException
    from avro.schema import make_avsc_object

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of logical types that mean nothing
            return make_avsc_object(described)
    except RecursionError:
        raise BadSchema("its types refer to each other too deeply") from None
    except (AvroException, TypeError, ValueError, AttributeError, KeyError) as problem:
        raise BadSchema(f"no Avro schema: {_short(str(problem))}") from None


def _check_sizes(described: Any) -> None:
    waiting = [("type", described)]
    while waiting:
        key, part = waiting.pop()
        if isinstance(part, list):
            most = _LISTS.get(key)
            if most is not None and len(part) > most:
                raise BadSchema(f"{key}: {len(part):,} in one list; {most:,} are allowed")
            waiting += [("type", one) for one in part]
        elif isinstance(part, dict):
            waiting += [(name, value) for name, value in part.items() if name != "default"]


def check_reads(reader: AvroSchema, writer: AvroSchema) -> None:
    """Incompatible when `reader` cannot read all that is written with `writer`; BadSchema when that takes too long to
    find out."""
    try:
        found = _checker()(reader, writer)
    except RecursionError:
        raise BadSchema("its types refer to each other too deeply") from None
    if found:
        raise Incompatible(_short(found))


@cache
def _checker() -> Callable[[AvroSchema, AvroSchema], str]:
    """Gives a sentence: what keeps the reader from reading; empty when nothing does."""
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

    class Bounded(ReaderWriterCompatibilityChecker):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.steps = 0

        def calculate_compatibility(self, reader: Any, writer: Any, location: list[str]) -> Any:
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise BadSchema("comparing it takes too long: its unions have too many types that are alike")
            return super().calculate_compatibility(reader, writer, location)

    def check(reader: AvroSchema, writer: AvroSchema) -> str:
        result = Bounded().get_compatibility(reader, writer)
        if result.compatibility is SchemaCompatibilityType.compatible:
            return ""
        reasons = sorted({one.name.replace("_", " ") for one in result.incompatibilities})
        return f"{', '.join(reasons)}: {'; '.join(sorted(result.messages))} at {', '.join(sorted(result.locations))}"

    return check


def _short(sentence: str) -> str:
    return sentence if len(sentence) <= 300 else sentence[:300] + " …"
