"""Pulsar's bytes: frames, commands, metadata, markers. No sockets, no decisions.

    frames      a stream of bytes   <->  frames
    codec       the hot commands    <->  plain values; all others are protobuf objects
    metadata    a stored entry      <->  what a broker must know of it
    markers     marker entries      <->  the values of emulator/model/markers.py
    protobuf    reading with care, writing varints: what the others share

Whatever a peer sends, the only error that leaves this package is `ProtocolError`.
"""
