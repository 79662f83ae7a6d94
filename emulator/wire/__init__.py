"""Pulsar's wire format: frames, commands, entries and markers. It uses no sockets and decides nothing.

    frames             a stream of bytes  <->  frames
    codec_hot          SEND, MESSAGE, ACK, FLOW and receipts  <->  plain values, by hand
    commands           all other commands: one table of values
    message_metadata   a stored entry  ->  what a broker needs of it
    markers            marker entries  <->  the values of emulator/model/markers.py
    protobuf           checked parsing and varints, shared by the modules above

For any bytes of a peer, the only error that the package raises is `ProtocolError`.
"""
