"""JSON whose texts UTF-8 cannot encode."""

from __future__ import annotations

import pytest

from emulator.run.json_text import is_unicode, parse_json, readable

LONE = r'{"detail": ["\ud800"]}'


@pytest.mark.parametrize(
    "text",
    [
        LONE,
        LONE.encode(),
        LONE.encode("utf-16-le"),
        r'{"\uDFFF": 1}',
        r'"\udc00\ud800"',
        b'"\xed\xa0\x80"',
        '"\ud800"',
    ],
)
def test_a_lone_surrogate_is_an_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"the lone surrogate '\\u[dD]"):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud83d\ude00"', "😀"),
        ('"😀 é"', "😀 é"),
        ('"é"'.encode(), "é"),
        (r'"\\ud800"', r"\ud800"),
        (b"[1, null]", [1, None]),
    ],
)
def test_other_texts_are_parsed(text: str | bytes, value: object) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize("text", ["", "{", b"\xff", "[" * 200_000, b"[" * 200_000])
def test_what_is_no_json_is_an_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|decode|nested"):
        parse_json(text)


def test_a_file_name_of_other_bytes_is_shown_with_escapes() -> None:
    assert is_unicode("é")
    assert not is_unicode("x\udcff")
    assert readable("x\udcff") == r"x\udcff"
