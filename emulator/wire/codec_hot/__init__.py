"""The commands of the hot paths, read and written by hand: SEND, MESSAGE, ACK, FLOW, receipts, opening a producer, and
transactions.

    publishing   SEND and SEND_RECEIPT
    consuming    MESSAGE, ACK, its response, and FLOW
    opening      LOOKUP, PARTITIONED_METADATA, CLOSE_PRODUCER, and the responses of opening and closing a producer
    transactions NEW_TXN, ADD_PARTITION_TO_TXN, END_TXN, and their responses

Naming: `decode_x` reads BaseCommand bytes and raises ProtocolError for malformed ones; `encode_x` writes BaseCommand
bytes, or whole frames for receipts and responses; `x_frame` writes a whole frame, `x_header` a frame without its entry.

Signs: all numbers are u64 in protobuf, and Pulsar writes -1 as 2**64-1 where a position is absent. Ledgers, entries and
the numbers of a receipt are therefore signed here. Producer, consumer, request, sequence and transaction numbers of
other commands stay u64. Encoders accept both.
"""
