"""The Python client as a driver: reads commands, a line each, and answers each with a line, in whatever order they end.

    command    <number> TAB <verb> [TAB <name>=<value>]…
    answer     <number> TAB ok [TAB <name>=<value>]…
               <number> TAB error TAB <name> TAB <text>

`Driver.java` and `driver.go` speak the same. A verb that waits does not keep others from being carried out.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pulsar

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
}
Arguments = dict[str, str]

made: dict[str, Any] = {}
"""Clients and producers by key."""
writing = threading.Lock()


def client(of: Arguments) -> str:
    seconds = int(of["timeout_ms"]) / 1000
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    made[of["key"]] = pulsar.Client(of["url"], operation_timeout_seconds=max(1, int(seconds)), logger=quiet)
    return ""


def producer(of: Arguments) -> str:
    made[of["key"]] = made[of["client"]].create_producer(
        of["topic"],
        producer_name=of.get("name"),
        access_mode=ACCESS[of.get("access", "Shared")],
        send_timeout_millis=int(of.get("send_timeout_ms", "30000")),
    )
    return f"\tname={made[of['key']].producer_name()}"


def send(of: Arguments) -> str:
    made[of["key"]].send(of["payload"].encode(), partition_key=of.get("message_key"))
    return ""


def subscribe(of: Arguments) -> str:
    made[of["key"]] = made[of["client"]].subscribe(
        of["topic"],
        of["subscription"],
        consumer_type=TYPES[of.get("type", "Exclusive")],
        initial_position=pulsar.InitialPosition.Earliest,
    )
    return ""


def receive(of: Arguments) -> str:
    """One message, acknowledged."""
    message = made[of["key"]].receive(timeout_millis=int(of["timeout_ms"]))
    made[of["key"]].acknowledge(message)
    return f"\tpayload={message.data().decode()}\ttopic={message.topic_name()}\tkey={message.partition_key()}"


def partitions(of: Arguments) -> str:
    return f"\tcount={len(made[of['client']].get_topic_partitions(of['topic']))}"


def close(of: Arguments) -> str:
    made.pop(of["key"]).close()
    return ""


VERBS: dict[str, Callable[[Arguments], str]] = {
    "client": client,
    "producer": producer,
    "send": send,
    "subscribe": subscribe,
    "receive": receive,
    "partitions": partitions,
    "close": close,
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
