"""The committed protobuf module matches the committed proto file."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.message import Message

import emulator
from emulator.wire import pulsar_pb2 as pb

ROOT = Path(emulator.__file__).parent.parent
PROTO = "emulator/wire/pulsar.proto"


def test_the_generated_module_is_up_to_date(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    assert protoc.main(["", f"--proto_path={ROOT}", f"--python_out={tmp_path}", str(ROOT / PROTO)]) == 0
    generated = (tmp_path / "emulator/wire/pulsar_pb2.py").read_text()
    ours = (ROOT / "emulator/wire/pulsar_pb2.py").read_text()
    assert _descriptor(ours) == _descriptor(generated), "run the commands at the head of pulsar.proto"


def _descriptor(module: str) -> str:
    """Return the line that matters; the rest changes with the generator's version."""
    return next(line for line in module.splitlines() if line.startswith("DESCRIPTOR"))


def test_lean_forms_use_the_numbers_of_the_full_ones() -> None:
    pairs: list[tuple[type[Message], type[Message]]] = [
        (pb.LeanSend, pb.CommandSend),
        (pb.LeanPosition, pb.MessageIdData),
        (pb.LeanReceipt, pb.CommandSendReceipt),
        (pb.LeanMessage, pb.CommandMessage),
        (pb.LeanAck, pb.CommandAck),
        (pb.LeanFlow, pb.CommandFlow),
        (pb.LeanMetadata, pb.MessageMetadata),
        (pb.LeanDispatch, pb.MessageMetadata),
        (pb.LeanUsualEntry, pb.MessageMetadata),
        (pb.LeanEntry, pb.MessageMetadata),
        (pb.LeanForwarded, pb.MessageMetadata),
        (pb.LeanPairs, pb.MessageMetadata),
        (pb.LeanProperties, pb.MessageMetadata),
        (pb.LeanCommand, pb.BaseCommand),
    ]
    for lean, full in pairs:
        for field in lean.DESCRIPTOR.fields:
            assert full.DESCRIPTOR.fields_by_number[field.number].name == field.name
