"""One load through the real Python client, in a process of its own: prints one JSON object.

python -m benchmarks.client_load publish|publish-batched|drain|latency SERVICE_URL MESSAGES
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
import uuid

import pulsar

PAYLOAD = b"x" * 100


def _client(url: str) -> pulsar.Client:
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def publish(url: str, messages: int, *, batched: bool, topic: str | None = None) -> float:
    """Messages per second from the first send to the last receipt, with callbacks."""
    client = _client(url)
    producer = client.create_producer(
        topic or f"bench-{uuid.uuid4().hex}",
        batching_enabled=batched,
        batching_max_publish_delay_ms=1,
        max_pending_messages=1000 if not batched else 20_000,
        block_if_queue_full=True,
    )
    left, done, failures = messages, threading.Event(), []

    def told(result: pulsar.Result, _: object) -> None:
        nonlocal left
        if result != pulsar.Result.Ok:
            failures.append(result)
        left -= 1
        if left == 0:
            done.set()

    started = time.perf_counter()
    for _ in range(messages):
        producer.send_async(PAYLOAD, told)
    producer.flush()
    if not done.wait(60) or failures:
        raise RuntimeError(f"{left} unanswered, {len(failures)} failed: {failures[:1]}")
    rate = messages / (time.perf_counter() - started)
    client.close()
    return rate


def drain(url: str, messages: int) -> float:
    """Messages per second of a backlog, acknowledged one by one."""
    topic = f"bench-{uuid.uuid4().hex}"
    client = _client(url)
    client.subscribe(topic, "drain", initial_position=pulsar.InitialPosition.Earliest).close()
    publish(url, messages, batched=False, topic=topic)
    consumer = client.subscribe(
        topic, "drain", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=5000
    )
    started = time.perf_counter()
    for _ in range(messages):
        consumer.acknowledge(consumer.receive(20_000))
    rate = messages / (time.perf_counter() - started)
    client.close()
    return rate


def latency_ms(url: str, messages: int) -> float:
    """Median of one message in flight."""
    client = _client(url)
    producer = client.create_producer(f"bench-{uuid.uuid4().hex}", batching_enabled=False)
    for _ in range(50):
        producer.send(PAYLOAD)
    samples = []
    for _ in range(messages):
        # At most 1,000 a second: the peer's latency is only meaningful there.
        time.sleep(0.001)
        started = time.perf_counter()
        producer.send(PAYLOAD)
        samples.append(time.perf_counter() - started)
    client.close()
    return statistics.median(samples) * 1000


def main(arguments: list[str]) -> None:
    what, url, messages = arguments[0], arguments[1], int(arguments[2])
    match what:
        case "publish":
            figure = publish(url, messages, batched=False)
        case "publish-batched":
            figure = publish(url, messages, batched=True)
        case "drain":
            figure = drain(url, messages)
        case "latency":
            figure = latency_ms(url, messages)
        case _:
            raise SystemExit(f"unknown load {what!r}")
    print(json.dumps({"figure": figure}))


if __name__ == "__main__":
    main(sys.argv[1:])
