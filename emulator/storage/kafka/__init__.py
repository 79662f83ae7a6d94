"""A region's log and keys in a Kafka: the broker itself keeps nothing durable (docs/KAFKA.md).

    settings     what `log.options` may say
    names        names of Kafka topics, and of keys in the one that holds the key-value part
    records      bytes of records: what is written, what is read
    connection   one socket to one Kafka broker
    cluster      all of them: who leads what, topics, fetches, retries
    writer       group commits: one produce request at a time, sent again until it has an answer
    reader       batches back, in pages
    ownership    how a new owner shuts the older one out and learns what that one left
    log          one topic's entries
    store        the contract

Everything runs on the event loop; there are no threads.
"""

from emulator.storage.kafka.store import KafkaStore, open_kafka

__all__ = ["KafkaStore", "open_kafka"]
