"""A region's logs and keys in Kafka: the broker itself stores nothing durably (docs/KAFKA.md).

    settings     the settings in `log.options`
    names        names of Kafka topics, and of keys in the key topic
    records      encoding and decoding of record batches
    connection   one socket to one Kafka broker
    cluster      all connections: leaders, topics, fetches, retries
    writer       group commits: one group at a time, resent until Kafka responds
    reader       reads of batches, in pages
    ownership    how a new owner fences the older one and reads its records
    log          one topic's entries
    store        the contract

Everything runs on the event loop; there are no threads.
"""

from emulator.storage.kafka.store import KafkaStore, open_kafka

__all__ = ["KafkaStore", "open_kafka"]
