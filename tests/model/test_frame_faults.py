"""`FrameFault` is the gate of faults of frames: names and ranges are checked, with one clear message."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from emulator.core.replication.progress import LOCAL_MARKER_TYPES
from emulator.model.frame_faults import (
    BETWEEN_REGIONS,
    CLIENT_COMMANDS,
    COMMANDS,
    LOCAL_MARKERS,
    MARKERS,
    FrameAction,
    FrameFault,
    check_link_of,
)

DROP = FrameAction.DROP


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"what": "snapshot_respons"}, "do you mean snapshot_response?"),
        ({"what": "Send_Receipt"}, "do you mean send_receipt?"),
        ({"what": "zzz"}, "known are ack, ack_response"),
        ({"what": 7}, "7 is no command or marker"),
        ({"what": "snapshot"}, "stays in the log of its own region"),
        ({"what": "txn_commit"}, "stays in the log of its own region"),
        ({"count": 0}, "count: 0 is not a whole number from 1"),
        ({"count": True}, "count: True is not"),
        ({"nth": -1}, "nth: -1 is not"),
        ({"nth": 1.5}, "nth: 1.5 is not"),
        ({"by_ms": 5.0}, "only a delay has a time"),
        ({"action": FrameAction.DELAY}, "a delay needs a time"),
        ({"action": FrameAction.DELAY, "by_ms": float("nan")}, "a delay needs a time"),
        ({"action": "drop"}, "action: 'drop' is none of drop"),
        ({"number": -1}, "number: -1"),
    ],
)
def test_a_bad_value_has_a_clear_message(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        FrameFault(**{"action": DROP, "what": "send", **values})


@pytest.mark.parametrize(
    "raw", [None, [], {}, {"action": "drop"}, {"action": "drop", "what": "send", "x": 1}]
)
def test_other_json_is_refused(raw: Any) -> None:
    with pytest.raises(ValueError, match="a fault has the fields"):
        FrameFault.from_json(raw)


def test_a_fault_is_the_same_after_json() -> None:
    fault = FrameFault(FrameAction.DELAY, "send_receipt", 3, 2, 1_500.0, 9)
    assert FrameFault.from_json(json.loads(json.dumps(asdict(fault)))) == fault
    assert str(fault) == "delay 3 send_receipt by 1500 ms, from number 2 on"


def test_a_command_of_clients_never_passes_a_link_between_regions() -> None:
    with pytest.raises(ValueError, match="ack is a command of clients"):
        check_link_of(FrameFault(DROP, "ack"), clients=False)
    with pytest.raises(ValueError, match="snapshot_response is a marker"):
        check_link_of(FrameFault(DROP, "snapshot_response"), clients=True)
    check_link_of(FrameFault(DROP, "ack"), clients=True)
    check_link_of(FrameFault(DROP, "snapshot_response"), clients=False)


def test_each_name_is_in_one_group() -> None:
    assert len(set(COMMANDS)) == len(COMMANDS)
    assert not set(CLIENT_COMMANDS) & set(BETWEEN_REGIONS)
    assert set(LOCAL_MARKERS.values()) == LOCAL_MARKER_TYPES
    assert not set(MARKERS) & set(COMMANDS)
