"""Which schema may follow which, and which definitions are invalid."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.schemas import avro
from emulator.core.schemas.avro import check_reads, parse_avro
from emulator.core.schemas.compatibility import CompatibilityStrategy, check_follows, check_form
from emulator.core.schemas.json_text import DEPTH_MAX, BadSchema, Incompatible, normalized
from emulator.core.schemas.key_value import data_as_text, data_from_text, join_data, split_data
from emulator.core.schemas.versions import Version, Versions, identity_of
from emulator.model.values import Schema, SchemaType
from tests.schemas_made import (
    FIRST,
    RENAMED,
    STRING,
    WITH_DEFAULT,
    WITHOUT_DEFAULT,
    key_value,
    native,
    record,
)


def follows(old: Schema, new: Schema, strategy: CompatibilityStrategy = CompatibilityStrategy.FULL) -> bool:
    try:
        check_follows(old, new, strategy)
    except Incompatible:
        return False
    return True


def named(name: str, kind: str = "record") -> dict[str, Any]:
    """Types that differ only in their names."""
    inside = {"fields": [{"name": "x", "type": "int"}]} if kind == "record" else {"symbols": ["A"]}
    return {"type": kind, "name": name, **inside}


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda part: part,
        lambda part: {"type": "record", "name": "R", "fields": [{"name": "f", "type": part}]},
        lambda part: {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", part]}]},
        lambda part: {"type": "array", "items": part},
    ],
    ids=["alone", "as a field", "in a union", "in an array"],
)
def test_a_record_may_have_another_name_and_an_enum_may_not(wrapped: Any) -> None:
    """Python classes may be named User1 and User2; Pulsar lets the second follow the first."""
    for kind, may in (("record", True), ("enum", False)):
        one, other = (
            Schema(SchemaType.AVRO, json.dumps(wrapped(named(name, kind))).encode()) for name in ("E1", "E2")
        )
        assert follows(one, other) == may, kind


@pytest.mark.parametrize(
    ("strategy", "added", "added_with_default", "removed", "renamed"),
    [
        (CompatibilityStrategy.ALWAYS_INCOMPATIBLE, False, False, False, False),
        (CompatibilityStrategy.ALWAYS_COMPATIBLE, True, True, True, True),
        (CompatibilityStrategy.BACKWARD, False, True, True, False),
        (CompatibilityStrategy.FORWARD, True, True, False, False),
        (CompatibilityStrategy.FULL, False, True, False, False),
        (CompatibilityStrategy.BACKWARD_TRANSITIVE, False, True, True, False),
        (CompatibilityStrategy.FORWARD_TRANSITIVE, True, True, False, False),
        (CompatibilityStrategy.FULL_TRANSITIVE, False, True, False, False),
    ],
)
@pytest.mark.parametrize("type_", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF])
def test_what_each_strategy_allows(
    type_: SchemaType,
    strategy: CompatibilityStrategy,
    added: bool,
    added_with_default: bool,
    removed: bool,
    renamed: bool,
) -> None:
    first, with_default, without, other = (
        one._replace(type=type_) for one in (FIRST, WITH_DEFAULT, WITHOUT_DEFAULT, RENAMED)
    )
    assert follows(first, without, strategy) == added
    assert follows(first, with_default, strategy) == added_with_default
    assert follows(without, first, strategy) == removed
    assert follows(first, other, strategy) == renamed


def test_consumers_are_held_to_what_they_read() -> None:
    """PIP-44."""
    held = {strategy: strategy.for_consumers for strategy in CompatibilityStrategy}
    assert (
        held[CompatibilityStrategy.FORWARD]
        is held[CompatibilityStrategy.FULL]
        is CompatibilityStrategy.BACKWARD
    )
    assert held[CompatibilityStrategy.FORWARD_TRANSITIVE] is CompatibilityStrategy.BACKWARD
    assert held[CompatibilityStrategy.FULL_TRANSITIVE] is CompatibilityStrategy.FULL_TRANSITIVE


def test_types_do_not_follow_each_other() -> None:
    assert not follows(FIRST, STRING)
    assert not follows(FIRST, FIRST._replace(type=SchemaType.JSON))
    assert follows(FIRST, STRING, CompatibilityStrategy.ALWAYS_COMPATIBLE)
    assert follows(STRING, STRING._replace(properties={"a": "b"}))


def test_json_in_its_old_form_is_known_by_its_id() -> None:
    def old(id_: str) -> Schema:
        data = {"type": "object", "id": id_, "properties": {"id": {"type": "string"}}}
        return Schema(SchemaType.JSON, json.dumps(data).encode())

    new = FIRST._replace(type=SchemaType.JSON)
    for schema in (old("urn:a"), new):
        check_form(schema)
    assert follows(old("urn:a"), old("urn:a"))
    assert not follows(old("urn:a"), old("urn:b"))
    assert follows(old("urn:a"), new)
    assert follows(new, old("urn:a"))


def test_a_key_value_schema_is_compared_half_by_half() -> None:
    pair = key_value(STRING, FIRST)
    check_form(pair)
    assert follows(pair, key_value(STRING, WITH_DEFAULT))
    assert not follows(pair, key_value(STRING, WITHOUT_DEFAULT))
    assert not follows(pair, key_value(FIRST, FIRST))
    with pytest.raises(BadSchema, match="inside of another"):
        check_form(key_value(STRING, pair))


def test_a_native_schema_keeps_its_root_message() -> None:
    assert follows(native("Order", "Order"), native("Order", "Order", "Item"))
    assert not follows(native("Order", "Order"), native("Item", "Item"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"{}",
        b'{"type":5}',
        b'{"type":"record","name":"a","fields":{}}',
        b'{"type":"record","name":"a","fields":[5]}',
        b'{"type":"enum","name":"e","symbols":[1]}',
        b'{"type":"fixed","name":"e","size":"x"}',
        b'{"type":"record","name":"\xff","fields":[]}',
        b'{"type":"map"}',
        b"9" * 5_000,
        b"[" * 100_000,
        b'{"type":"array","items":' * (DEPTH_MAX + 1) + b'"int"' + b"}" * (DEPTH_MAX + 1),
    ],
)
def test_an_invalid_avro_schema_is_rejected_with_a_reason(data: bytes) -> None:
    with pytest.raises(BadSchema):
        parse_avro(data)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["record", "int", "enum"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "fields",
                    "items",
                    "values",
                    "symbols",
                    "default",
                    "size",
                    "logicalType",
                    "aliases",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_whatever_a_client_sends_is_a_schema_or_a_bad_one(value: Any) -> None:
    try:
        made = parse_avro(json.dumps(value).encode())
    except BadSchema:
        return
    try:
        check_reads(made, made)
    except (BadSchema, Incompatible):
        return


def test_a_record_that_refers_to_itself_is_compared() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "next", "type": ["null", "Tree"], "default": None}],
    }
    made = parse_avro(json.dumps(tree).encode())
    check_reads(made, parse_avro(json.dumps(tree).encode()))


def test_a_comparison_that_takes_too_many_steps_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    def union(prefix: str, field: str) -> Any:
        kinds = [
            {"type": "record", "name": f"{prefix}{number}", "fields": [{"name": "x", "type": field}]}
            for number in range(20)
        ]
        return parse_avro(
            json.dumps({"type": "record", "name": "R", "fields": [{"name": "u", "type": kinds}]}).encode()
        )

    monkeypatch.setattr(avro, "STEPS_MAX", 200)
    with pytest.raises(BadSchema, match="takes too long"):
        check_reads(union("P", "int"), union("Q", "string"))


def test_records_that_are_referred_to_again_and_again_are_compared_soon() -> None:
    def referring(type_: str, order: range) -> bytes:
        fields = [{"name": f"f{number}", "type": type_} for number in range(1_000)]
        large = {"type": "record", "name": "Large", "fields": fields}
        again = [{"name": f"r{number}", "type": "Large"} for number in order]
        whole = {"type": "record", "name": "R", "fields": [{"name": "a", "type": large}, *again]}
        return json.dumps(whole).encode()

    began = time.perf_counter()
    with pytest.raises(Incompatible, match="type mismatch"):
        check_reads(
            parse_avro(referring("int", range(1_900))), parse_avro(referring("long", range(1_899, -1, -1)))
        )
    assert time.perf_counter() - began < 5  # of 0.1; a copy of all that was found, for each field, took 20


UNFORESEEN: list[Any] = [
    {"type": "error", "name": "R", "fields": []},
    {"type": "record", "name": "R", "fields": [{"name": "f", "type": "int", "aliases": [{}]}]},
    {"type": "record", "name": "R", "fields": [{"name": "f", "type": "int", "aliases": 5}]},
    {"type": "record", "name": "R", "fields": [{"name": "f", "type": "int", "aliases": ["a"] * 50_000}]},
    {"type": "enum", "name": "R", "symbols": ["a"], "default": []},
]


@pytest.mark.parametrize("described", UNFORESEEN, ids=lambda described: json.dumps(described)[:80])
def test_schemas_that_the_avro_library_does_not_expect_cause_no_unexpected_error(described: Any) -> None:
    odd = Schema(SchemaType.AVRO, json.dumps(described).encode())
    for old, new in ((odd, odd._replace(data=odd.data + b" ")), (odd, record("x")), (record("x"), odd)):
        with contextlib.suppress(BadSchema, Incompatible):
            check_form(new)
            check_follows(old, new, CompatibilityStrategy.FULL)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_only_utf_8_is_json_so_that_no_other_code_hides_how_deep_it_is(encoding: str) -> None:
    """In another encoding a byte of ∁ or ∢ looks like a quotation mark to code that counts brackets."""
    deep = '{"type":"object","\u2241":' + "[" * 400 + "]" * 400 + ',"\u2241":1}'
    data = deep.encode(encoding)
    with pytest.raises(BadSchema):
        check_form(Schema(SchemaType.JSON, data))
    assert normalized(data) == data


def test_what_means_the_same_is_one_version() -> None:
    spaced = FIRST._replace(data=json.dumps(json.loads(FIRST.data), indent=3, sort_keys=True).encode())
    told = json.loads(FIRST.data) | {"doc": "an order"}
    documented = FIRST._replace(data=json.dumps(told).encode())
    assert identity_of(FIRST) == identity_of(spaced) == identity_of(documented)
    others = [record("id=x"), record("id=y"), STRING, FIRST._replace(type=SchemaType.JSON)]
    others += [key_value(STRING, FIRST), key_value(STRING, FIRST, "SEPARATED")]
    assert len({identity_of(one) for one in (FIRST, *others)}) == len(others) + 1


@given(st.binary(max_size=9), st.binary(max_size=9))
def test_halves_are_separated_again(key: bytes, value: bytes) -> None:
    assert split_data(join_data(key, value)) == (key, value)


@given(st.binary(max_size=20))
def test_invalid_data_of_a_key_value_schema_is_rejected(data: bytes) -> None:
    try:
        key, value = split_data(data)
    except BadSchema:
        return
    assert len(join_data(key, value)) == len(data)


def test_halves_are_shown_as_json() -> None:
    text = data_as_text(join_data(b"", FIRST.data))
    assert json.loads(text)["value"] == json.loads(FIRST.data)
    assert split_data(data_from_text(text))[0] == b""


def test_versions_since_the_last_deletion_count() -> None:
    versions = Versions()
    for number, schema in enumerate((FIRST, WITH_DEFAULT, None, STRING)):
        versions.put(Version.decode(number, Version(number, schema, 7).encode()))
    assert [one.number for one in versions.present()] == [3]
    assert versions.find(FIRST) is None
    found = versions.find(STRING)
    assert found is not None
    assert found.number == 3
    old = versions.get(0)
    assert old is not None
    assert old.schema == FIRST
    assert versions.next_number == 4


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"type":"AVRO","at_ms":1}', b'{"type":"X","at_ms":1}']
)
def test_an_invalid_schema_version_is_rejected_with_a_reason(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Version.decode(0, value)
