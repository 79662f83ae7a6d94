"""The numbers of all commands.

Plain integers and not an enum: the type of every frame is compared with some of them, and looking up an enum member
takes four times as long. A test compares them with `pulsar.proto`.
"""

from __future__ import annotations

from typing import Final


class CommandType:
    """Type numbers by protocol name. They are also the field numbers of the bodies in BaseCommand."""

    CONNECT: Final = 2
    CONNECTED: Final = 3
    SUBSCRIBE: Final = 4
    PRODUCER: Final = 5
    SEND: Final = 6
    SEND_RECEIPT: Final = 7
    SEND_ERROR: Final = 8
    MESSAGE: Final = 9
    ACK: Final = 10
    FLOW: Final = 11
    UNSUBSCRIBE: Final = 12
    SUCCESS: Final = 13
    ERROR: Final = 14
    CLOSE_PRODUCER: Final = 15
    CLOSE_CONSUMER: Final = 16
    PRODUCER_SUCCESS: Final = 17
    PING: Final = 18
    PONG: Final = 19
    REDELIVER_UNACKNOWLEDGED_MESSAGES: Final = 20
    PARTITIONED_METADATA: Final = 21
    PARTITIONED_METADATA_RESPONSE: Final = 22
    LOOKUP: Final = 23
    LOOKUP_RESPONSE: Final = 24
    CONSUMER_STATS: Final = 25
    CONSUMER_STATS_RESPONSE: Final = 26
    REACHED_END_OF_TOPIC: Final = 27
    SEEK: Final = 28
    GET_LAST_MESSAGE_ID: Final = 29
    GET_LAST_MESSAGE_ID_RESPONSE: Final = 30
    ACTIVE_CONSUMER_CHANGE: Final = 31
    GET_TOPICS_OF_NAMESPACE: Final = 32
    GET_TOPICS_OF_NAMESPACE_RESPONSE: Final = 33
    GET_SCHEMA: Final = 34
    GET_SCHEMA_RESPONSE: Final = 35
    AUTH_CHALLENGE: Final = 36
    AUTH_RESPONSE: Final = 37
    ACK_RESPONSE: Final = 38
    GET_OR_CREATE_SCHEMA: Final = 39
    GET_OR_CREATE_SCHEMA_RESPONSE: Final = 40
    NEW_TXN: Final = 50
    NEW_TXN_RESPONSE: Final = 51
    ADD_PARTITION_TO_TXN: Final = 52
    ADD_PARTITION_TO_TXN_RESPONSE: Final = 53
    ADD_SUBSCRIPTION_TO_TXN: Final = 54
    ADD_SUBSCRIPTION_TO_TXN_RESPONSE: Final = 55
    END_TXN: Final = 56
    END_TXN_RESPONSE: Final = 57
    END_TXN_ON_PARTITION: Final = 58
    END_TXN_ON_PARTITION_RESPONSE: Final = 59
    END_TXN_ON_SUBSCRIPTION: Final = 60
    END_TXN_ON_SUBSCRIPTION_RESPONSE: Final = 61
    TC_CLIENT_CONNECT_REQUEST: Final = 62
    TC_CLIENT_CONNECT_RESPONSE: Final = 63
    WATCH_TOPIC_LIST: Final = 64
    WATCH_TOPIC_LIST_SUCCESS: Final = 65
    WATCH_TOPIC_UPDATE: Final = 66
    WATCH_TOPIC_LIST_CLOSE: Final = 67
    TOPIC_MIGRATED: Final = 68
