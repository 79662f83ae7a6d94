"""Driver of the Python client: reads one command per line, and prints one response line when the command ends.

    command    <number> TAB <verb> [TAB <name>=<value>]…
    answer     <number> TAB ok [TAB <name>=<value>]…
               <number> TAB error TAB <name> TAB <text>

`fields` gives a producer or consumer a schema: a record of strings such as `id,note=` (text after `=` is a default).
The producer then sends the payload in each field; the consumer prints a message field by field with its schema version.

All drivers use this protocol. A command that waits does not block others.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
from pulsar.schema import JsonSchema, Record, String

ACCESS = {
    "Shared": pulsar.ProducerAccessMode.Shared,
    "Exclusive": pulsar.ProducerAccessMode.Exclusive,
    "WaitForExclusive": pulsar.ProducerAccessMode.WaitForExclusive,
    "ExclusiveWithFencing": pulsar.ProducerAccessMode.ExclusiveWithFencing,
}
TYPES = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Shared": pulsar.ConsumerType.Shared,
    "KeyShared": pulsar.ConsumerType.KeyShared,
    "Failover": pulsar.ConsumerType.Failover,
}
COMPRESSIONS = {
    "NONE": pulsar.CompressionType.NONE,
    "LZ4": pulsar.CompressionType.LZ4,
    "ZLIB": pulsar.CompressionType.ZLib,
    "ZSTD": pulsar.CompressionType.ZSTD,
    "SNAPPY": pulsar.CompressionType.SNAPPY,
}
Arguments = dict[str, str]

ENDS = {"earliest": pulsar.MessageId.earliest, "latest": pulsar.MessageId.latest}

made: dict[str, Any] = {}
"""Clients, producers, consumers and readers by key."""
ids: dict[str, Any] = {}
"""Ids of the messages that this driver published, by payload."""
unqueued: set[str] = set()
"""Keys of consumers with queue size 0, for which the client does not support a receive timeout."""
records: dict[str, type[Record]] = {}
"""Schemas of producers and consumers, by key."""
writing = threading.Lock()


def client(of: Arguments) -> str:
    seconds = int(of["timeout_ms"]) / 1000
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    made[of["key"]] = pulsar.Client(
        of["url"],
        operation_timeout_seconds=max(1, int(seconds)),
        logger=quiet,
        authentication=credentials(of),
        **security(of),
    )
    return ""


def credentials(of: Arguments) -> pulsar.Authentication | None:
    """Return the credentials in files: a token, which is read each time, or NAME:PASSWORD."""
    if "token_file" in of:
        return pulsar.AuthenticationToken(lambda: Path(of["token_file"]).read_text())
    if "basic_file" in of:
        name, _, password = Path(of["basic_file"]).read_text().partition(":")
        return pulsar.AuthenticationBasic(name, password)
    if "oauth2" in of:
        return pulsar.AuthenticationOauth2(Path(of["oauth2"]).read_text())
    return None


def security(of: Arguments) -> dict[str, Any]:
    """Return the arguments of a client with TLS."""
    if "trust" not in of:
        return {}
    own = {
        "tls_certificate_file_path": of.get("certificate"),
        "tls_private_key_file_path": of.get("private_key"),
    }
    return {"tls_trust_certs_file_path": of["trust"], "tls_validate_hostname": True, **own}


def schema(of: Arguments) -> dict[str, Any]:
    if "fields" not in of:
        return {}
    fields: dict[str, Any] = {}
    described: list[dict[str, str]] = []
    for field in of["fields"].split(","):
        name, with_default, default = field.partition("=")
        fields[name] = String(default=default, required=True) if with_default else String(required=True)
        described.append({"name": name, "type": "string"} | ({"default": default} if with_default else {}))
    record = records[of["key"]] = type("Order", (Record,), fields)
    # The client's own schema definition lacks defaults.
    record.schema = classmethod(lambda cls: {"type": "record", "name": "Order", "fields": described})
    return {"schema": JsonSchema(record)}


def producer(of: Arguments) -> str:
    made[of["key"]] = made[of["client"]].create_producer(
        of["topic"],
        producer_name=of.get("name"),
        access_mode=ACCESS[of.get("access", "Shared")],
        send_timeout_millis=int(of.get("send_timeout_ms", "30000")),
        batching_enabled="batch" in of,
        batching_max_messages=int(of.get("batch", "1000")),
        batching_max_publish_delay_ms=60_000 if "batch" in of else 10,
        chunking_enabled=of.get("chunking") == "1",
        compression_type=COMPRESSIONS[of.get("compression", "NONE")],
        encryption_key="key" if "keys" in of else None,
        **_encryption(of),
        **schema(of),
    )
    return f"\tname={made[of['key']].producer_name()}"


def send(of: Arguments) -> str:
    delay = datetime.timedelta(milliseconds=int(of["delay_ms"])) if "delay_ms" in of else None
    record = records.get(of["key"])
    content = (
        of["payload"].encode() if record is None else record(**dict.fromkeys(record._fields, of["payload"]))
    )
    sent = made[of["key"]].send(content, partition_key=of.get("message_key"), deliver_after=delay)
    ids[of["payload"]] = sent
    return ""


def send_batch(of: Arguments) -> str:
    """Send `payloads`, whose number is the producer's batch size, as one batch."""
    payloads, sent = of["payloads"].split(","), threading.Event()
    failed = []

    def stored(payload: str, result: Any, message_id: Any) -> None:
        ids[payload] = message_id
        if result != pulsar.Result.Ok:
            failed.append(result)
        if payload == payloads[-1]:
            sent.set()

    for payload in payloads:
        made[of["key"]].send_async(
            payload.encode(), lambda result, message_id, payload=payload: stored(payload, result, message_id)
        )
    made[of["key"]].flush()
    if not sent.wait(60):
        raise TimeoutError("flush returned before the last receipt")
    if failed:
        raise RuntimeError(str(failed[0]))
    return ""


def _encryption(of: Arguments) -> dict[str, Any]:
    """Return the encryption options. `keys`: a directory with public.pem and private.pem."""
    if "keys" not in of:
        return {}
    reader = pulsar.CryptoKeyReader(f"{of['keys']}/public.pem", f"{of['keys']}/private.pem")
    return {"crypto_key_reader": reader}


def send_bytes(of: Arguments) -> str:
    """Send a payload of `size` bytes derived from `seed`, and return its digest."""
    payload = hashlib.shake_128(of["seed"].encode()).digest(int(of["size"]))
    made[of["key"]].send(payload, partition_key=of.get("message_key"))
    return f"\tdigest={hashlib.sha256(payload).hexdigest()}"


def receive_bytes(of: Arguments) -> str:
    """Receive one message, acknowledge it, and return the digest of its payload."""
    message = made[of["key"]].receive(timeout_millis=int(of["timeout_ms"]))
    made[of["key"]].acknowledge(message)
    return f"\tdigest={hashlib.sha256(message.data()).hexdigest()}"


def read_compacted(of: Arguments) -> str:
    """Return the key and value of every message of the compacted topic."""
    reader = made[of["client"]].create_reader(of["topic"], pulsar.MessageId.earliest, is_read_compacted=True)
    found = []
    while reader.has_message_available():
        message = reader.read_next(timeout_millis=int(of["timeout_ms"]))
        found.append(f"{message.partition_key()}:{message.data().decode()}")
    reader.close()
    return f"\tmessages={','.join(found)}"


def table(of: Arguments) -> str:
    """Return the entries of a new table view, sorted by key."""
    view = made[of["client"]].create_table_view(of["topic"])
    found: list[str] = []
    view.for_each(lambda key, value: found.append(f"{key}:{value.decode()}"))
    view.close()
    return f"\tentries={','.join(sorted(found))}"


def open_table(of: Arguments) -> str:
    """Open a table view that stays open and follows its topic."""
    made[of["key"]] = made[of["client"]].create_table_view(of["topic"])
    return ""


def entries(of: Arguments) -> str:
    found: list[str] = []
    made[of["key"]].for_each(lambda key, value: found.append(f"{key}:{value.decode()}"))
    return f"\tentries={','.join(sorted(found))}"


def subscribe(of: Arguments) -> str:
    dead = None
    if "dead_letters" in of:
        dead = pulsar.ConsumerDeadLetterPolicy(
            int(of["redeliveries"]), of["dead_letters"], of["first_subscription"]
        )
    if of.get("queue") == "0":
        unqueued.add(of["key"])
    made[of["key"]] = made[of["client"]].subscribe(
        re.compile(of["pattern"]) if "pattern" in of else of["topic"],
        of["subscription"],
        consumer_type=TYPES[of.get("type", "Exclusive")],
        initial_position=pulsar.InitialPosition.Latest
        if of.get("from") == "latest"
        else pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=dead,
        receiver_queue_size=int(of.get("queue", "1000")),
        batch_index_ack_enabled=True,
        start_message_id_inclusive=True,
        **_encryption(of),
        **schema(of),
    )
    return ""


def receive(of: Arguments) -> str:
    """Receive one message and return its fields. `then`: acknowledge, give back (negatively), otherwise neither."""
    consumer = made[of["key"]]
    message = consumer.receive(timeout_millis=None if of["key"] in unqueued else int(of["timeout_ms"]))
    then = of.get("then", "acknowledge")
    if then == "acknowledge":
        consumer.acknowledge(message)
    elif then == "give back":
        consumer.negative_acknowledge(message)
    record = records.get(of["key"])
    if record is not None:
        value = message.value()
        said = "".join(f"\t{name}={getattr(value, name)}" for name in record._fields)
        return f"{said}\tversion={message._message.int_schema_version()}"
    return (
        f"\tpayload={message.data().decode()}\ttopic={message.topic_name()}\tkey={message.partition_key()}"
        f"\tcount={message.redelivery_count()}"
    )


def reader(of: Arguments) -> str:
    """Open a reader at `earliest`, at `latest`, or at a message that this driver published."""
    made[of["key"]] = made[of["client"]].create_reader(
        of["topic"],
        _place(of["start"]),
        start_message_id_inclusive=of.get("inclusive") == "yes",
        is_read_compacted=of.get("compacted") == "yes",
    )
    return ""


def _place(word: str) -> Any:
    return ENDS[word] if word in ENDS else ids[word]


def available(of: Arguments) -> str:
    return f"\tanswer={'yes' if made[of['key']].has_message_available() else 'no'}"


def read(of: Arguments) -> str:
    message = made[of["key"]].read_next(timeout_millis=int(of["timeout_ms"]))
    return f"\tpayload={message.data().decode()}"


def seek(of: Arguments) -> str:
    made[of["key"]].seek(int(of["time_ms"]) if "time_ms" in of else _place(of["place"]))
    return ""


def partitions(of: Arguments) -> str:
    return f"\tcount={len(made[of['client']].get_topic_partitions(of['topic']))}"


def close(of: Arguments) -> str:
    made.pop(of["key"]).close()
    return ""


VERBS: dict[str, Callable[[Arguments], str]] = {
    verb.__name__: verb
    for verb in (
        client,
        producer,
        send,
        send_bytes,
        receive_bytes,
        read_compacted,
        table,
        open_table,
        entries,
        send_batch,
        subscribe,
        receive,
        reader,
        available,
        read,
        seek,
        partitions,
        close,
    )
}


def carry_out(number: str, verb: str, of: Arguments) -> None:
    try:
        answer = "ok" + VERBS[verb](of)
    except Exception as problem:
        answer = f"error\t{type(problem).__name__}\t{' '.join(str(problem).split())}"
    with writing:
        print(f"{number}\t{answer}", flush=True)


for line in sys.stdin:
    number, verb, *pairs = line.rstrip("\n").split("\t")
    arguments = dict(pair.split("=", 1) for pair in pairs)
    threading.Thread(target=carry_out, args=(number, verb, arguments), daemon=True).start()
