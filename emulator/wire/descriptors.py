"""Protobuf descriptors as clients send them in a schema.

{"fileDescriptorSet": base64, "rootMessageTypeName": full name, "rootFileDescriptorName": file}
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError


def check_descriptors(data: bytes) -> None:
    """ValueError when the files do not describe the message that they are said to describe."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    said = json.loads(data)
    root = said.get("rootMessageTypeName")
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(said["fileDescriptorSet"], validate=True)).file
    except (KeyError, TypeError, ValueError, DecodeError):
        raise ValueError("fileDescriptorSet: these are not Protobuf descriptors") from None
    names = [file.name for file in files]
    if said.get("rootFileDescriptorName") not in names:
        raise ValueError(
            f"rootFileDescriptorName: {said.get('rootFileDescriptorName')!r} is not among the files"
        )
    messages = (name for file in files for name in _names(file.message_type, file.package))
    if root not in messages:
        raise ValueError(f"rootMessageTypeName: no file describes {root!r}")


def _names(messages: Any, inside: str) -> Iterator[str]:
    """Full names, nested ones too."""
    for message in messages:
        name = f"{inside}.{message.name}" if inside else message.name
        yield name
        yield from _names(message.nested_type, name)
