"""Pulsar's wire format: frames, commands, entries and markers. It uses no sockets and decides nothing.

    frames             a stream of bytes  <->  frames
    codec_hot          SEND, MESSAGE, ACK, FLOW and receipts  <->  plain values, by hand
    commands           all other commands  <->  frozen values
    message_metadata   an entry  ->  the metadata that a broker, a client or the verdict uses
    entry, batches     building entries and changing their metadata; entry_layout: checksums
    payloads           compression, encryption, batches; observing: parsing for a recording proxy
    markers            marker entries  <->  the values of emulator/model/markers.py
    protobuf           checked parsing and varints, shared by the modules above

For any bytes of a client or peer, the only error that decoding raises is `ProtocolError`; `check_descriptors` raises
ValueError.
"""
