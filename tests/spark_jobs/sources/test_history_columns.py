"""Histories that are converted in blocks: the same rows and damages as those of lines that are parsed one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.run.history_schema import FIELDS, FRAME, OPERATIONS
from spark_jobs.sources import history_columns, history_files
from spark_jobs.sources.history_files import Slice, read_rows

TOPIC = "persistent://public/default/orders"
VALUES: dict[str, Any] = {
    "at_ms": 1763712000000.125,
    "actor": "shop",
    "region": "us-east",
    "other_region": "us-west",
    "topic": TOPIC,
    "subscription": "billing",
    "origin_region": "us-east",
    "producer": "shop-1",
    "session": "shop-1 1",
    "sequence_id": 7,
    "last_sequence_id": -1,
    "topic_epoch": 2,
    "message_id": "134217727:68719476735:-1",
    "payload_digest": "fedcba9876543210",
    "attributes_digest": "0000000000000001",
    "key": "k\n\u2028",
    "replicate_to": ["us-west"],
    "replicated": True,
    "initial": "earliest",
    "compacted": False,
    "how": "cumulative",
    "transaction": "0,18446744073709551615",
    "action": "abort",
    "transaction_key": "card 7",
    "key_epoch": 1,
    "error": "null",
    "detail": "über",
    "file": "shop",
}
PUBLISH = {name: VALUES[name] for name in ("at_ms", "actor", *OPERATIONS["publish"]["asked"].required)}


def line(op: str, outcome: str, **fields: Any) -> bytes:
    return json.dumps({"op": op, "outcome": outcome} | fields, ensure_ascii=False).encode()


def all_kinds() -> Iterator[bytes]:
    """Yield a line of each operation and outcome, with its required fields only, and with all except the plan."""
    for op, outcomes in OPERATIONS.items():
        for outcome, fields in outcomes.items():
            if op not in FRAME and op != "failover_plan":
                required = {name: VALUES[name] for name in ("at_ms", "actor", *fields.required)}
                yield line(op, outcome, **required)
                yield line(op, outcome, **required, **{name: VALUES[name] for name in fields.optional})


def rows(folder: Path, text: bytes, monkeypatch: pytest.MonkeyPatch, *, in_blocks: bool) -> list[Any]:
    file = folder / "shop.jsonl"
    file.write_bytes(text)
    monkeypatch.setattr(history_files, "COLUMNAR_BYTES_MIN", 0 if in_blocks else 1 << 40)
    batches = read_rows(Slice(file, 0, len(text), 1), ("us-east", "us-west"), ("public/default",))
    return sorted((row for batch in batches for row in batch.to_pylist()), key=repr)


def converted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record of each block whether it was converted."""
    found: list[bool] = []
    convert = history_columns.HistoryColumns.convert

    def recorded(self: Any, block: bytes, end_ms: float) -> Any:
        columns = convert(self, block, end_ms)
        found.append(columns is not None)
        return columns

    monkeypatch.setattr(history_columns.HistoryColumns, "convert", recorded)
    return found


@pytest.mark.parametrize("block_bytes", [1, 400, 1 << 20])
def test_lines_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    monkeypatch.setattr(history_files, "BLOCK_BYTES", block_bytes)
    found = converted(monkeypatch)
    text = b"\n".join([*all_kinds(), *all_kinds()]) + b"\n"
    blocks = rows(tmp_path, text, monkeypatch, in_blocks=True)
    assert blocks == rows(tmp_path, text, monkeypatch, in_blocks=False)
    assert found
    assert all(found)
    assert len(blocks) == text.count(b"\n")


WRONG = [
    *(
        line("publish", "asked", **{**PUBLISH, name: value})
        for name in PUBLISH
        for value in (None, 5, "", [])
    ),
    *(line("publish", "asked", **{**PUBLISH, "at_ms": at}) for at in (-1, 2**53, 2**60, float("nan"), "5")),
    *(line("publish", "asked", **{**PUBLISH, "sequence_id": of}) for of in (-1, 2**63, 1.5, 5.0, True)),
    *(
        line("publish", "asked", **{**PUBLISH, "payload_digest": of})
        for of in ("ABCDEF0123456789", "a" * 15, "a" * 17, "a b c d e f 0 1 ", "éééééééé")
    ),
    *(
        line("publish", "ok", **{k: v for k, v in PUBLISH.items() if k != "payload_digest"}, message_id=of)
        for of in (
            "1:2",
            "01:2:-1",
            "1:9999999999999999999:-1",
            "134217728:2:-1",
            "1:68719476736:-1",
            "1:2:-2",
            "1:2:0\n",
            "1:2:1234567890",
            "1:٣:0",
        )
    ),
    line("publish", "asked", **PUBLISH, origin_region="us-west"),
    line("publish", "asked", **PUBLISH, attributes_digest="x" * 16),
    line("publish", "asked", **PUBLISH, key=""),
    line("publish", "asked", **PUBLISH, unknown=1),
    line("publish", "asked", **{**PUBLISH, "topic": "other/place/orders"}),
    line("publish", "asked", **{**PUBLISH, "topic": "orders"}),
    line("publish", "asked", **{**PUBLISH, "region": "mars"}),
    line("publish", "asked", **{k: v for k, v in PUBLISH.items() if k != "session"}),
    line("publish", "told", **PUBLISH),
    line("utter", "asked", **PUBLISH),
    line("receive", "ok", **{name: VALUES[name] for name in ("at_ms", "actor", "producer")}),
    line("omission", "fact", at_ms=1, actor="shop", detail="disk full"),
    line("publish", "asked", **PUBLISH)[:-1] + b',"session":"twice"}',
    line("publish", "asked", **PUBLISH) + b" " + line("publish", "asked", **PUBLISH),
    line("publish", "asked", **PUBLISH).replace(b",", b",\n", 1),
    line("publish", "asked", **PUBLISH).replace(b"shop", b"sh\\u006fp"),
    line("publish", "asked", **PUBLISH).replace(b"shop", b"sh\\ud800p"),
    line("publish", "asked", **PUBLISH).replace(b"shop", b"sh\xffp"),
    line("publish", "asked", **PUBLISH).replace(b"shop", b"sh\x00p"),
    line("publish", "asked", **PUBLISH).replace(b"shop", b"sh\x01p"),
    line("publish", "asked", **PUBLISH)[:-20],
    b"  " + line("publish", "asked", **PUBLISH) + b"\r",
    b"\xef\xbb\xbf" + line("publish", "asked", **PUBLISH),
    b"[]",
    b"{}",
    b"5",
    b"\x00",
    b"{" * 3000,
    b"",
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_a_line_that_may_be_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: bytes) -> None:
    good = [*all_kinds()]
    for text in (
        b"\n".join([*good, wrong, *good]),
        b"\n".join([wrong, *good]) + b"\n",
        b"\n".join([*good, wrong, wrong]),
        wrong,
    ):
        assert rows(tmp_path, text, monkeypatch, in_blocks=True) == rows(
            tmp_path, text, monkeypatch, in_blocks=False
        )


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_bytes_in_any_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    text = bytearray(b"\n".join(all_kinds()) + b"\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=2) | st.sampled_from([b"\n", b"0", b'"', b"null", b"}", b'":"', b"1e3", b"-"])
        )
    folder = tmp_path_factory.mktemp("bytes")
    with pytest.MonkeyPatch.context() as monkeypatch:
        blocks = rows(folder, bytes(text), monkeypatch, in_blocks=True)
        assert blocks == rows(folder, bytes(text), monkeypatch, in_blocks=False)


def test_every_field_has_an_arrow_type_or_is_unusual() -> None:
    assert set(FIELDS) - set(history_columns.COLUMNS) == {"replicate_to", "plan", "others"}
