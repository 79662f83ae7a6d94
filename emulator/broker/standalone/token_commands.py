"""`bin/pulsar tokens`: create keys and tokens, as test set-ups do in the container before they start the broker."""

from __future__ import annotations

import argparse
import base64
import re
import tempfile
from pathlib import Path
from typing import Any, Final

from emulator.broker.standalone.secret_values import as_file
from emulator.config.security import TokenConfig
from emulator.config.tokens import (
    claims_of,
    create_secret,
    read_secret,
    signed_by_private_key,
    signed_by_secret,
)

SECONDS_PER_UNIT: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000, "": 1}


def add_token_commands(commands: Any) -> None:
    """Add `tokens` and its commands to the parser of `bin/pulsar`."""
    tokens = commands.add_parser("tokens", allow_abbrev=False, help="create keys and tokens")
    chosen = tokens.add_subparsers(
        dest="token_command", required=True, metavar="create-secret-key|create-key-pair|create"
    )
    secret = chosen.add_parser("create-secret-key", allow_abbrev=False, help="create a secret key of HS256")
    secret.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: print the key")
    secret.add_argument("-b", "--base64", action="store_true", help="encode the key as base64")
    _add_algorithm(secret, "HS256")
    pair = chosen.add_parser("create-key-pair", allow_abbrev=False, help="create a private and a public key")
    pair.add_argument("--output-private-key", type=Path, required=True, metavar="FILE")
    pair.add_argument("--output-public-key", type=Path, required=True, metavar="FILE")
    _add_algorithm(pair, "RS256", "ES256")
    create = chosen.add_parser("create", allow_abbrev=False, help="print a token")
    create.add_argument("-s", "--subject", required=True, metavar="ROLE")
    create.add_argument("-e", "--expiry-time", metavar="DURATION", help="such as 1h; default: for ever")
    key = create.add_mutually_exclusive_group(required=True)
    key.add_argument("-sk", "--secret-key", metavar="KEY")
    key.add_argument("-pk", "--private-key", metavar="KEY")
    _add_algorithm(create, "HS256", "RS256", "ES256")


def _add_algorithm(parser: argparse.ArgumentParser, *algorithms: str) -> None:
    parser.add_argument("-a", "--signature-algorithm", choices=algorithms, default=algorithms[0])


def run_token_command(options: argparse.Namespace) -> None:
    """Carry out a command of `tokens`. Raises OSError or ValueError when that is impossible."""
    match options.token_command:
        case "create-secret-key":
            _create_secret(options)
        case "create-key-pair":
            _create_pair(options)
        case _:
            print(_token(options))


def _create_secret(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        create_secret(path := Path(folder) / "key")
        raw = read_secret(path)[0]
    content = base64.b64encode(raw) if options.base64 or options.output is None else raw
    if options.output is None:
        print(content.decode())
    else:
        options.output.write_bytes(content)


def _create_pair(options: argparse.Namespace) -> None:
    """Write both keys in the format of Pulsar's command: DER, PKCS 8 and SubjectPublicKeyInfo."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    made: Any = (
        rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        if options.signature_algorithm == "RS256"
        else ec.generate_private_key(ec.SECP256R1())
    )
    private = made.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    public = made.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    options.output_private_key.write_bytes(private)
    options.output_public_key.write_bytes(public)


def _token(options: argparse.Namespace) -> str:
    expires = None if options.expiry_time is None else _seconds(options.expiry_time)
    claims = claims_of(options.subject, TokenConfig(), expires)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "key"
        if options.secret_key is not None:
            return signed_by_secret(claims, read_secret(as_file(options.secret_key, copy))[0])
        return signed_by_private_key(claims, as_file(options.private_key, copy))


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,9})([smhdwy]?)", text)
    if found is None or int(found[1]) == 0:
        raise ValueError(f"--expiry-time={text}: must be a duration above 0 like 30s, 10m, 1h or 365d")
    return int(found[1]) * SECONDS_PER_UNIT[found[2]]
