"""Pulsar's wire format: frames, commands, entries and markers. No sockets, no decisions.

    frames             a stream of bytes  <->  frames
    codec_hot          SEND, MESSAGE, ACK, FLOW and receipts  <->  plain values, by hand
    commands           all other commands: one table of values
    message_metadata   a stored entry  ->  what a broker needs of it
    markers            marker entries  <->  the values of emulator/model/markers.py
    protobuf           checked parsing and varints, shared by the modules above

Whatever a peer sends, the only error that leaves this package is `ProtocolError`.
"""
