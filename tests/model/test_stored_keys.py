"""Every stored key is built and read back by one module (D4)."""

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from emulator.model.stored_keys import KINDS, CursorKey, ProgressKey, StoredKey, parse_key

NAMES = st.text(st.sampled_from("a/%2F\0:é") | st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS: st.SearchStrategy[StoredKey] = st.sampled_from(sorted(KINDS)).flatmap(
    lambda name: st.tuples(*[NAMES] * len(fields(KINDS[name]))).map(lambda parts: KINDS[name](*parts))
)


@given(KEYS)
def test_a_key_is_read_back_from_its_text(key: StoredKey) -> None:
    assert parse_key(key.text) == key


@given(KEYS, KEYS)
def test_different_keys_have_different_texts(one: StoredKey, other: StoredKey) -> None:
    assert (one.text == other.text) == (one == other)


@given(NAMES, NAMES, NAMES)
def test_a_prefix_matches_whole_parts_only(topic: str, subscription: str, other: str) -> None:
    prefix = CursorKey.prefix(other)
    assert prefix.endswith("/")
    assert CursorKey(topic, subscription).text.startswith(prefix) == (topic == other)


@given(st.text(st.sampled_from("cursor/topic%2Fabc\0"), max_size=20))
def test_a_text_that_no_key_has_is_no_key(text: str) -> None:
    key = parse_key(text)
    assert key is None or key.text == text


def test_slashes_of_topics_and_subscriptions_do_not_meet() -> None:
    assert CursorKey("orders", "eu/billing").text != CursorKey("orders/eu", "billing").text


def test_keys_are_readable() -> None:
    key = ProgressKey("persistent://public/default/orders", "us-west")
    assert key.text == "replicator/persistent:%2F%2Fpublic%2Fdefault%2Forders/us-west"
