"""The table of admission: which messages a client or a replicator may publish."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from emulator.core.admission import (
    ClientProducer,
    EntrySizeLimits,
    OwnRegion,
    Peer,
    PeerPermission,
    Publisher,
    RefusalScope,
    check,
)
from emulator.errors import ServerError
from emulator.model.markers import Marker, Snapshot, SnapshotRequest, SnapshotResponse, SubscriptionUpdate
from emulator.model.values import Position

LIMITS = EntrySizeLimits(payload_bytes=1_000, entry_bytes=1_200, batch_bytes=1_000)
HERE = Position(1, 7)


@dataclass(frozen=True)
class Says:
    """The relevant fields of an entry."""

    producer_name: str = "p"
    replicated_from: str | None = None
    source_position: Position | None = None
    marker_type: int | None = None
    sequence_id: int = 0
    highest_sequence_id: int = 0
    num_messages: int = 1
    payload_offset: int = 50


CLIENT = ClientProducer("p", "here:1")
EU = Peer("eu")
FROM_EU = Says("anybody", "eu", HERE)
UPDATE = SubscriptionUpdate("s", (("us", HERE),))


def sentence(publisher: Publisher, says: Says, marker: Marker | None = None, size: int = 100) -> str:
    refusal = check(publisher, says, marker, size, LIMITS)
    if refusal is None:
        return ""
    assert refusal.code is ServerError.NotAllowedError
    assert refusal.scope is (RefusalScope.ATTACHMENT if isinstance(publisher, Peer) else RefusalScope.ENTRY)
    return refusal.sentence


@pytest.mark.parametrize(
    ("says", "size", "why"),
    [
        (Says(), 100, ""),
        (Says("victim"), 100, "names producer 'victim'; it was sent by 'p'"),
        (Says(replicated_from="eu"), 100, "replicated from 'eu'"),
        (Says(marker_type=13), 100, "marker type 13"),
        (Says(marker_type=0), 100, "marker type 0"),
        (Says(), 1_050, ""),
        (Says(), 1_051, "message of 1001 bytes exceeds the maximum of 1000"),
        (Says(payload_offset=1_100), 1_200, ""),
        (Says(payload_offset=1_100), 1_201, "entry of 1201 bytes exceeds the maximum of 1200"),
    ],
)
def test_a_client_speaks_for_its_own_producer_only(says: Says, size: int, why: str) -> None:
    found = sentence(CLIENT, says, None, size)
    assert why in found
    assert bool(why) == bool(found)


@pytest.mark.parametrize(
    ("says", "marker", "why"),
    [
        (FROM_EU, None, ""),
        (replace(FROM_EU, replicated_from=None), None, "replicated from None; it was sent by 'eu'"),
        (replace(FROM_EU, replicated_from="ap"), None, "replicated from 'ap'; it was sent by 'eu'"),
        (replace(FROM_EU, source_position=None), None, "lacks its source position"),
        (replace(FROM_EU, marker_type=13), UPDATE, ""),
        (replace(FROM_EU, marker_type=10), SnapshotRequest("1", "eu"), ""),
        (replace(FROM_EU, marker_type=10), SnapshotRequest("1", "ap"), "in the name of 'ap'"),
        (replace(FROM_EU, marker_type=11), SnapshotResponse("1", "eu", HERE), ""),
        (replace(FROM_EU, marker_type=11), SnapshotResponse("1", "us", HERE), "in the name of 'us'"),
        (replace(FROM_EU, marker_type=12), Snapshot("1", HERE, ()), "in its own log only"),
        (replace(FROM_EU, marker_type=99), None, "marker type 99 of 'eu' is not known here"),
    ],
)
def test_a_peer_speaks_for_its_own_region_only(says: Says, marker: Marker | None, why: str) -> None:
    found = sentence(EU, says, marker)
    assert why in found
    assert bool(why) == bool(found)


def test_a_peer_may_carry_metadata_up_to_the_frame() -> None:
    """What replication added does not count; its payload does."""
    assert not sentence(EU, replace(FROM_EU, payload_offset=1_100), None, 1_500)
    assert "message of 1001 bytes" in sentence(EU, FROM_EU, None, 1_051)


def test_what_a_declared_cluster_may_do_is_what_was_declared() -> None:
    mute, trusted = Peer("eu", frozenset()), Peer("eu", frozenset({PeerPermission.UNKNOWN_MARKERS}))
    unknown, update = replace(FROM_EU, marker_type=99), replace(FROM_EU, marker_type=13)
    assert "is not known here" in sentence(mute, unknown)
    assert "may not take part" in sentence(mute, update, UPDATE)
    assert not sentence(mute, FROM_EU)
    assert not sentence(trusted, unknown)


def test_a_region_writes_its_own_markers() -> None:
    assert not sentence(OwnRegion("us"), Says("pulsar.marker", marker_type=12), Snapshot("1", HERE, ()))


@pytest.mark.parametrize("publisher", [CLIENT, EU])
@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"sequence_id": 2**63}, "sequence_id 9223372036854775808 exceeds the maximum"),
        ({"highest_sequence_id": 2**64 - 1}, "highest_sequence_id 18446744073709551615 exceeds the maximum"),
        ({"num_messages": 2**31 - 1}, "a batch of 2147483647 messages does not fit into 1000 bytes"),
    ],
)
def test_numbers_that_no_message_has_are_refused(
    publisher: Publisher, claim: dict[str, int], said: str
) -> None:
    says = FROM_EU if publisher is EU else Says()
    assert said in sentence(publisher, replace(says, **claim))
    assert sentence(publisher, replace(says, sequence_id=2**63 - 1, num_messages=100)) == ""
