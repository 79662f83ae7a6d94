"""Our own client's end-to-end encryption; with other clients: tests/clients/test_payloads.py."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from emulator.client import (
    Batching,
    Client,
    Compression,
    Consumer,
    ConsumerType,
    DeadLetters,
    Decryption,
    Encryption,
    InitialPosition,
    OnUnreadable,
)
from emulator.client.encryption import DATA_KEY_SECONDS, PayloadOpener, PayloadSeal, Unreadable
from emulator.simulation.world import World
from emulator.wire.payloads import EncryptionContext

FROM_THE_BEGINNING = InitialPosition.EARLIEST
SECRET = b"a secret of some length"


@cache
def pair(name: str) -> tuple[bytes, bytes]:
    """(public, private), as PEM."""
    key = rsa.generate_private_key(65537, 2048)
    return public_pem(key), private_pem(key)


def public_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


def private_pem(key: rsa.RSAPrivateKey) -> bytes:
    form, none = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, none)


def encryption(*names: str) -> Encryption:
    return Encryption({name: pair(name)[0] for name in names})


def decryption(*names: str, on_unreadable: OnUnreadable = OnUnreadable.FAIL) -> Decryption:
    return Decryption({name: pair(name)[1] for name in names}, on_unreadable)


def stored(w: World, topic: str = "orders") -> list[bytes]:
    """Return the bytes on the region's disk."""
    return w.regions["us"].medium.logs[f"persistent://public/default/{topic}"].entries


async def send(client: Client, *payloads: bytes, **wanted: object) -> None:
    producer = await client.producer("orders", encryption=encryption("anna", "bert"), **wanted)  # type: ignore[arg-type]
    await asyncio.gather(*map(producer.send, payloads))
    await producer.close()


async def subscribe(client: Client, *keys: str, subscription: str = "s", **options: Any) -> Consumer:
    """From the first message on, with the private keys of these names."""
    options = {"topic": "orders", "decryption": decryption(*keys), **options}
    return await client.subscribe(subscription=subscription, initial_position=FROM_THE_BEGINNING, **options)


@pytest.mark.parametrize("batching", [None, Batching(messages_max=2)])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZLIB])
async def test_a_consumer_with_one_of_the_keys_reads_and_the_region_cannot(
    world: World, client: Client, batching: Batching | None, compression: Compression
) -> None:
    await send(client, SECRET, SECRET * 9, batching=batching, compression=compression)
    for name in ("anna", "bert"):
        consumer = await subscribe(client, name, subscription=name)
        messages = [await consumer.receive() for _ in range(2)]
        assert [message.payload for message in messages] == [SECRET, SECRET * 9]
        assert messages[0].encryption is None
    assert not any(SECRET in data for data in stored(world))


async def test_a_large_message_is_encrypted_chunk_by_chunk(world: World, client: Client) -> None:
    await send(client, SECRET * 500_000, chunking=True)
    assert len(stored(world)) > 2
    assert not any(SECRET in data for data in stored(world))
    reader = await client.reader("orders", inclusive=True, decryption=decryption("bert"))
    await reader.seek(0)
    assert (await reader.receive()).payload == SECRET * 500_000


async def test_a_consumer_without_a_key_receives_nothing_and_one_with_a_key_receives_it_later(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        await send(client, SECRET, SECRET, batching=Batching(messages_max=2))
        await (await client.producer("orders")).send(b"plain")
        consumer = await subscribe(client)
        message = await consumer.receive()
        assert message.payload == b"plain"
        await consumer.acknowledge(message, confirmed=True)
        await consumer.close()
        again = await subscribe(client, "anna")
        assert [(await again.receive()).payload for _ in range(2)] == [SECRET, SECRET]
    assert "encrypted for anna, bert; this consumer lacks the private key" in caplog.text


async def test_a_small_queue_is_not_filled_by_unreadable_messages(client: Client) -> None:
    await send(client, *[SECRET] * 40, batching=Batching(messages_max=4))
    await (await client.producer("orders")).send(b"plain")
    for queue in (0, 1, 3):
        consumer = await subscribe(client, subscription=f"{queue}", receiver_queue_size=queue)
        async with asyncio.timeout(30):
            assert (await consumer.receive()).payload == b"plain"


async def test_a_discarded_message_is_acknowledged_and_not_redelivered(client: Client) -> None:
    await send(client, SECRET, SECRET, batching=Batching(messages_max=2))
    await (await client.producer("orders")).send(b"plain")
    discarding = decryption("carl", on_unreadable=OnUnreadable.DISCARD)
    consumer = await subscribe(client, decryption=discarding)
    assert (await consumer.receive()).payload == b"plain"
    await consumer.close()
    again = await subscribe(client, "anna")
    assert (await again.receive()).payload == b"plain"


async def test_a_message_consumed_encrypted_can_be_decrypted_and_acknowledged_by_the_application(
    client: Client,
) -> None:
    await send(client, SECRET)
    consumer = await subscribe(client, decryption=decryption(on_unreadable=OnUnreadable.CONSUME))
    message = await consumer.receive()
    assert message.encryption is not None
    assert set(message.encryption.data_keys) == {"anna", "bert"}
    opened = PayloadOpener(decryption("anna")).open(message.encryption, message.payload)
    assert opened == SECRET
    await consumer.acknowledge(message, confirmed=True)
    await consumer.close()
    later = await subscribe(client, "anna")
    await send(client, b"next")
    assert (await later.receive()).payload == b"next"


async def test_dead_letters_are_encrypted_if_that_is_wanted(world: World, client: Client) -> None:
    letters = DeadLetters(0, "dead", encryption=encryption("anna"))
    consumer = await subscribe(client, "bert", type_=ConsumerType.SHARED, dead_letters=letters)
    await send(client, SECRET)
    consumer.negative_acknowledge(await consumer.receive())
    dead = await subscribe(client, "anna", topic="dead")
    assert (await dead.receive()).payload == SECRET
    assert not any(SECRET in data for data in stored(world, "dead"))


def test_an_invalid_key_is_rejected_by_its_name() -> None:
    elliptic = public_pem(ec.generate_private_key(ec.SECP256R1()))
    for keys, reason in (
        ({"anna": b"nonsense"}, "public key 'anna' must be an RSA key as PEM"),
        ({"anna": pair("anna")[1]}, "public key 'anna' must be an RSA key as PEM"),
        ({"anna": elliptic}, "public key 'anna' must be an RSA key, not"),
        ({}, "at least one"),
    ):
        with pytest.raises(ValueError, match=reason):
            Encryption(keys)
    with pytest.raises(ValueError, match="private key 'anna' must be an RSA key as PEM"):
        Decryption({"anna": pair("anna")[0]})


def test_a_missing_library_is_named_and_unencrypted_clients_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    context, encrypted = sealed()
    pem = pair("anna")[0]
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match="install cryptography"):
        Encryption({"anna": pem})
    with pytest.raises(Unreadable, match="lacks the private key"):
        PayloadOpener(Decryption()).open(context, encrypted)


def sealed(payload: bytes = SECRET) -> tuple[EncryptionContext, bytes]:
    data_keys, nonce, encrypted = PayloadSeal(encryption("anna"), os.urandom, lambda: 0.0).close(payload)
    return EncryptionContext(data_keys, nonce, 0, 0, 1), encrypted


def test_a_modified_message_is_not_decrypted() -> None:
    context, encrypted = sealed()
    opener = PayloadOpener(decryption("anna"))
    assert opener.open(context, encrypted) == SECRET
    lies = (
        (context, encrypted[:-1] + bytes([encrypted[-1] ^ 1])),
        (context, b""),
        (context._replace(nonce=b""), encrypted),
        (context._replace(nonce=bytes(12)), encrypted),
        (context._replace(data_keys={"anna": b"short"}), encrypted),
        (context._replace(data_keys={"anna": sealed()[0].data_keys["anna"]}), encrypted),
        (context._replace(data_keys={}), encrypted),
    )
    for changed, payload in lies:
        with pytest.raises(Unreadable):
            opener.open(changed, payload)


def test_a_producer_replaces_its_data_key_after_a_while() -> None:
    now = 0.0
    seal = PayloadSeal(encryption("anna"), os.urandom, lambda: now)
    first, _, _ = seal.close(SECRET)
    now = DATA_KEY_SECONDS - 1
    assert seal.close(SECRET)[0] == first
    now = DATA_KEY_SECONDS
    assert seal.close(SECRET)[0] != first


def test_a_program_that_does_not_encrypt_needs_no_cryptography() -> None:
    """The image of a region does not have it."""
    program = "import sys; sys.modules['cryptography'] = None; import emulator.client"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
