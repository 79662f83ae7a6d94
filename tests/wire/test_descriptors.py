"""Protobuf descriptors, as clients send them."""

from __future__ import annotations

import json

import pytest

from emulator.wire.descriptors import check_descriptors
from tests.schemas_made import native


def test_a_message_that_a_file_describes_is_found() -> None:
    check_descriptors(native("Order", "Order").data)
    check_descriptors(native("shop.Order", "Item", "Order", package="shop").data)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rootMessageTypeName": "Item"}, "no file describes 'Item'"),
        ({"rootFileDescriptorName": "other.proto"}, "not among the files"),
        ({"fileDescriptorSet": "%%%"}, "not Protobuf descriptors"),
        ({"fileDescriptorSet": 5}, "not Protobuf descriptors"),
        ({"fileDescriptorSet": "//8="}, "not Protobuf descriptors"),
        ({"rootMessageTypeName": []}, "no file describes"),
        ({"rootFileDescriptorName": {}}, "not among the files"),
    ],
)
def test_what_describes_nothing_is_said(change: dict[str, object], why: str) -> None:
    said = json.loads(native("Order", "Order").data) | change
    with pytest.raises(ValueError, match=why):
        check_descriptors(json.dumps(said).encode())
