"""What a topic is given to store, and by whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NewType, Protocol, cast

from emulator.config.region import RegionConfig
from emulator.core.admission import Client, Limits, Publisher
from emulator.core.flow.rate_limit import Throttle
from emulator.model.markers import Marker
from emulator.wire.codec import SendCommand
from emulator.wire.entry import replication_bytes_max
from emulator.wire.frames import COMMAND_BYTES_MAX, FRAME_PADDING_BYTES
from emulator.wire.message_metadata import EntryInfo

CheckedEntry = NewType("CheckedEntry", EntryInfo)
"""Metadata of an entry that passed the gate. Made by a cast behind `core.admission.check`, and nowhere else."""


def limits_of(config: RegionConfig) -> Limits:
    """What a client of this region may send, so that its form for other regions fits into a frame there (A3). Regions
    that replicate to each other have the same maximum; whether a topic is replicated at all may change later."""
    frame_bytes = config.settings.max_message_bytes + FRAME_PADDING_BYTES
    return Limits(
        payload_bytes=config.settings.max_message_bytes,
        entry_bytes=frame_bytes - COMMAND_BYTES_MAX - replication_bytes_max(config.region),
        batch_bytes=config.settings.max_message_bytes,
    )


class Attachment(Protocol):
    """One that appends to a topic: a client's producer, the replicator of a peer, the topic itself (markers)."""

    publisher: Publisher

    def stored(self, publishes: Sequence[PendingPublish]) -> None:
        """These are durable, in the order of their sends."""
        ...


class ClientAttachment(Attachment, Protocol):
    """A client's producer: the only one whose publisher is a `Client`."""

    def slow_down(self, seconds: float) -> None:
        """Read nothing more from the client for so long."""
        ...


def slow_down(
    throttle: Throttle, batch: Sequence[PendingPublish], attached: Iterable[ClientAttachment]
) -> None:
    """Count what is published. If that was too much, read later whoever may publish to the topic: the allowance is the
    topic's, and a connection that has sent nothing yet has no part of its own (INV-79). Other regions are not held
    back: what they send was acknowledged there."""
    clients = [one for one in batch if type(one.attachment.publisher) is Client]
    if not clients:
        return
    messages = sum(max(1, one.info.num_messages) for one in clients)
    throttle.take(messages, sum(len(one.data) for one in clients), asyncio.get_running_loop().time() * 1000)
    published = [cast(ClientAttachment, one.attachment) for one in clients]
    hold_back(throttle, dict.fromkeys((*attached, *published)))


def hold_back(throttle: Throttle, attached: Iterable[ClientAttachment]) -> None:
    """Read these clients later while nothing may be published; also one that has only just come."""
    wait_ms = throttle.wait_ms(asyncio.get_running_loop().time() * 1000)
    if wait_ms > 0:
        for attachment in attached:
            if type(attachment.publisher) is Client:
                attachment.slow_down(wait_ms / 1000)


class PendingPublish:
    """One publish between admitted and acknowledged."""

    __slots__ = ("attachment", "data", "duplicate", "entry_id", "info", "marker", "send")

    def __init__(
        self,
        attachment: Attachment,
        send: SendCommand | None,
        data: bytes,
        info: CheckedEntry,
        marker: Marker | None,
        duplicate: bool,
    ) -> None:
        self.attachment = attachment
        self.send = send
        """None for what the topic itself writes."""
        self.data = data
        self.info = info
        self.marker = marker
        self.duplicate = duplicate
        self.entry_id = -1
        """Where it is stored, once it is durable; -1 for a duplicate."""
