"""What a client asks of a region, as whole frames. Sends, acknowledgements and permits, of which there are many, are in
`codec`.

Positions are (ledger, entry, batch index), signed: -1 and 2**63 - 1 mean what they mean to clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from emulator.model.values import Schema
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.commands import PROTOCOL_VERSION, write_schema
from emulator.wire.frames import simple_frame
from emulator.wire.protobuf import MASK_64

Place = tuple[int, int, int]


def connect(client_version: str) -> bytes:
    """CONNECT of a client that has nothing to prove."""
    body = pb.CommandConnect(client_version=client_version, protocol_version=PROTOCOL_VERSION)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=body))


def lookup(request_id: int, topic: str) -> bytes:
    """LOOKUP."""
    body = pb.CommandLookupTopic(topic=topic, request_id=request_id)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=body))


# Which topics there are.


def topics(request_id: int, namespace: str, pattern: str, known_hash: str) -> bytes:
    """GET_TOPICS_OF_NAMESPACE, of topics that keep their messages. `known_hash`: of the names that the client has;
    empty: it has none."""
    body = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=namespace, topics_pattern=pattern)
    if known_hash:
        body.topics_hash = known_hash
    type_ = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE
    return simple_frame(pb.BaseCommand(type=type_, getTopicsOfNamespace=body))


def watch_topics(request_id: int, watcher_id: int, namespace: str, pattern: str, known_hash: str) -> bytes:
    """WATCH_TOPIC_LIST."""
    body = pb.CommandWatchTopicList(
        request_id=request_id, watcher_id=watcher_id, namespace=namespace, topics_pattern=pattern
    )
    if known_hash:
        body.topics_hash = known_hash
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST, watchTopicList=body))


def end_watch(request_id: int, watcher_id: int) -> bytes:
    """WATCH_TOPIC_LIST_CLOSE."""
    body = pb.CommandWatchTopicListClose(request_id=request_id, watcher_id=watcher_id)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=body))


# Schemas.


def get_schema(request_id: int, topic: str, version: bytes = b"") -> bytes:
    """GET_SCHEMA. `version`: empty for the newest."""
    body = pb.CommandGetSchema(request_id=request_id, topic=topic)
    if version:
        body.schema_version = version
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA, getSchema=body))


def get_or_create_schema(request_id: int, topic: str, schema: Schema) -> bytes:
    """GET_OR_CREATE_SCHEMA."""
    body = pb.CommandGetOrCreateSchema(request_id=request_id, topic=topic)
    write_schema(body.schema, schema.type.name, schema)
    type_ = pb.BaseCommand.GET_OR_CREATE_SCHEMA
    return simple_frame(pb.BaseCommand(type=type_, getOrCreateSchema=body))


# Producers.


def partitions(request_id: int, topic: str, *, may_create: bool = False) -> bytes:
    """PARTITIONED_METADATA. `may_create`: a topic that is not there, where its namespace allows it."""
    body = pb.CommandPartitionedTopicMetadata(
        topic=topic, request_id=request_id, metadata_auto_creation_enabled=may_create
    )
    type_ = pb.BaseCommand.PARTITIONED_METADATA
    return simple_frame(pb.BaseCommand(type=type_, partitionMetadata=body))


def create_producer(
    request_id: int,
    producer_id: int,
    topic: str,
    name: str,
    *,
    name_is_given: bool,
    epoch: int = 0,
    access_mode: int = 0,
    topic_epoch: int | None = None,
    priority: int = 0,
    schema: Schema | None = None,
    initial_subscription: str | None = None,
    encrypts: bool = False,
) -> bytes:
    """PRODUCER.

    name         "": the region gives one
    epoch        how often this producer has been opened before
    topic_epoch  that the region granted an exclusive producer (PIP-68); None: none yet
    priority     in the waiting line (PIP-440)
    """
    body = pb.CommandProducer(
        topic=topic,
        producer_id=producer_id,
        request_id=request_id,
        epoch=epoch,
        user_provided_producer_name=name_is_given,
        producer_access_mode=access_mode,  # type: ignore[arg-type]
        topic_epoch=topic_epoch,
    )
    if name:
        body.producer_name = name
    if priority:
        body.queue_priority = priority
    if encrypts:
        body.encrypted = True
    if initial_subscription is not None:
        body.initial_subscription_name = initial_subscription
    if schema is not None:
        write_schema(body.schema, schema.type.name, schema)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body))


def close_producer(request_id: int, producer_id: int) -> bytes:
    """CLOSE_PRODUCER."""
    body = pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=body))


# Consumers.


def subscribe(
    request_id: int,
    consumer_id: int,
    topic: str,
    subscription: str,
    *,
    type_: int,
    name: str,
    initial_position: int,
    priority_level: int = 0,
    replicated: bool = False,
    is_key_shared: bool = False,
    key_ranges: Sequence[tuple[int, int]] = (),
    out_of_order: bool = False,
    start: Place | None = None,
    schema: Schema | None = None,
    read_compacted: bool = False,
    may_create: bool = True,
    properties: Mapping[str, str] | None = None,
    subscription_properties: Mapping[str, str] | None = None,
) -> bytes:
    """SUBSCRIBE. `start`: where a reader begins, whose subscription is not durable. `may_create`: a topic that is not
    there. `key_ranges`: of hashes (0 to 65,535, both ends included) that a Key_Shared consumer takes; empty: the region
    divides them. `out_of_order`: it need not wait until former owners of a key are done. `properties` are the
    consumer's; `subscription_properties` are kept with a subscription that is new."""
    body = pb.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=type_,  # type: ignore[arg-type]
        consumer_id=consumer_id,
        request_id=request_id,
        consumer_name=name,
        priority_level=priority_level,
        initialPosition=initial_position,  # type: ignore[arg-type]
    )
    if read_compacted:
        body.read_compacted = True
    if not may_create:
        body.force_topic_creation = False
    for pairs, text in ((body.metadata, properties), (body.subscription_properties, subscription_properties)):
        for key, value in (text or {}).items():
            pairs.add(key=key, value=value)
    if replicated:
        body.replicate_subscription_state = True
    if is_key_shared:
        body.keySharedMeta.keySharedMode = pb.STICKY if key_ranges else pb.AUTO_SPLIT
        body.keySharedMeta.allowOutOfOrderDelivery = out_of_order
        for start_hash, end_hash in key_ranges:
            body.keySharedMeta.hashRanges.add(start=start_hash, end=end_hash)
    if schema is not None:
        write_schema(body.schema, schema.type.name, schema)
    if start is not None:
        body.durable = False
        body.start_message_id.CopyFrom(_place(start))
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=body))


def redeliver(consumer_id: int, entries: Iterable[tuple[int, int]]) -> bytes:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES: these entries, or all if there are none."""
    body = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id)
    for ledger, entry in entries:
        body.message_ids.add(ledgerId=ledger, entryId=entry)
    type_ = pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
    return simple_frame(pb.BaseCommand(type=type_, redeliverUnacknowledgedMessages=body))


def seek(request_id: int, consumer_id: int, target: Place | int, ack_set: Iterable[int] = ()) -> bytes:
    """SEEK, to a place or to the first message that was published at a time (ms) or after it. `ack_set`: of a batch at
    the place, the messages that are wanted."""
    body = pb.CommandSeek(consumer_id=consumer_id, request_id=request_id)
    if isinstance(target, int):
        body.message_publish_time = target
    else:
        body.message_id.CopyFrom(_place(target))
        body.message_id.ack_set.extend(ack_set)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.SEEK, seek=body))


def last_message_id(request_id: int, consumer_id: int) -> bytes:
    """GET_LAST_MESSAGE_ID."""
    body = pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=body))


def unsubscribe(request_id: int, consumer_id: int) -> bytes:
    """UNSUBSCRIBE."""
    body = pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.UNSUBSCRIBE, unsubscribe=body))


def close_consumer(request_id: int, consumer_id: int) -> bytes:
    """CLOSE_CONSUMER."""
    body = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER, close_consumer=body))


def _place(place: Place) -> pb.MessageIdData:
    ledger, entry, batch_index = place
    return pb.MessageIdData(ledgerId=ledger & MASK_64, entryId=entry & MASK_64, batch_index=batch_index)
