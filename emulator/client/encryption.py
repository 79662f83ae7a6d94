"""End-to-end encryption as Pulsar's clients do it: regions store and replicate payloads that they cannot read.

A producer draws a data key (AES-256-GCM). Each entry carries the data key once per public key, encrypted with it
(RSA, OAEP). A consumer with one of the private keys can read the entry. Needs the library `cryptography`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from emulator.wire.payloads import EncryptionContext

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.padding import OAEP
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DATA_KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
DATA_KEY_SECONDS: Final = 4 * 3600.0
"""Age at which a producer replaces its data key, as other clients do."""
DATA_KEYS_MAX: Final = 1_000
"""Maximum number of data keys that a consumer caches: RSA takes a thousand times as long as the other steps."""


class Unreadable(Exception):
    """An entry that the consumer cannot decrypt or decompress."""

    def __init__(self, reason: str, context: EncryptionContext | None = None) -> None:
        super().__init__(reason)
        self.context = context
        """Encryption of the entry; None: it is not encrypted."""


class OnUnreadable(Enum):
    """Treatment of an encrypted message that no key of the consumer decrypts (Pulsar: ConsumerCryptoFailureAction)."""

    FAIL = "it is not delivered or acknowledged, and is redelivered when the consumer reconnects"
    DISCARD = "it is acknowledged, and never delivered"
    CONSUME = "it is delivered as it is, with `Message.encryption`; of a batch the whole entry"


@dataclass(frozen=True, slots=True)
class Encryption:
    """Public keys of the readers that a producer encrypts for."""

    public_keys: Mapping[str, bytes]
    """Name of each reader's key -> RSA public key as PEM; at least one."""

    def __post_init__(self) -> None:
        """ValueError without a key, for an invalid key, or when the library is not installed."""
        if not self.public_keys:
            raise ValueError("to encrypt, name at least one public key")
        for name, pem in self.public_keys.items():
            _public_key(name, pem)


@dataclass(frozen=True, slots=True)
class Decryption:
    """The keys with which a consumer decrypts."""

    private_keys: Mapping[str, bytes] = field(default_factory=dict)
    """Name of the key -> RSA private key as PEM, without a password."""
    on_unreadable: OnUnreadable = OnUnreadable.FAIL
    loaded: Mapping[str, RSAPrivateKey] = field(init=False, repr=False, compare=False)
    """The private keys, loaded once: loading a key takes a hundred times as long as using it."""

    def __post_init__(self) -> None:
        """ValueError for an invalid key, or when the library is not installed."""
        loaded = {name: _private_key(name, pem) for name, pem in self.private_keys.items()}
        object.__setattr__(self, "loaded", loaded)


class PayloadSeal:
    """Encrypts the entries of one producer (wire.payloads.Seal)."""

    def __init__(
        self, encryption: Encryption, draw: Callable[[int], bytes], now_seconds: Callable[[], float]
    ) -> None:
        """`draw` returns the given number of unpredictable bytes."""
        self._public_keys = {name: _public_key(name, pem) for name, pem in encryption.public_keys.items()}
        self._draw = draw
        self._now_seconds = now_seconds
        self._data_key = b""
        self._encrypted_data_keys: dict[str, bytes] = {}
        self._data_key_expires_at = -1.0

    @property
    def more_bytes(self) -> int:
        keys = sum(len(name.encode()) + key.key_size // 8 + 16 for name, key in self._public_keys.items())
        return keys + NONCE_BYTES + TAG_BYTES + 16

    def close(self, payload: bytes) -> tuple[Mapping[str, bytes], bytes, bytes]:
        if self._now_seconds() >= self._data_key_expires_at:
            self._renew_data_key()
        nonce = self._draw(NONCE_BYTES)
        return self._encrypted_data_keys, nonce, _aes(self._data_key).encrypt(nonce, payload, None)

    def _renew_data_key(self) -> None:
        self._data_key = self._draw(DATA_KEY_BYTES)
        self._encrypted_data_keys = {
            name: key.encrypt(self._data_key, _oaep()) for name, key in self._public_keys.items()
        }
        self._data_key_expires_at = self._now_seconds() + DATA_KEY_SECONDS


class PayloadOpener:
    """Decrypts the entries of one consumer."""

    def __init__(self, decryption: Decryption) -> None:
        self._private_keys = decryption.loaded
        self._data_keys: OrderedDict[bytes, bytes] = OrderedDict()
        """Encrypted data key -> data key."""

    def open(self, context: EncryptionContext, payload: bytes) -> bytes:
        """Return the decrypted payload. Raises Unreadable without a matching key, or when the payload was modified."""
        usable = [name for name in context.data_keys if name in self._private_keys]
        if not usable:
            sentence = (
                f"encrypted for {', '.join(sorted(context.data_keys))}; this consumer lacks the private key"
            )
            raise Unreadable(sentence, context)
        from cryptography.exceptions import InvalidTag

        for name in usable:
            data_key = self._data_key(name, context.data_keys[name])
            try:
                if data_key is not None:
                    return _aes(data_key).decrypt(context.nonce, payload, None)
            except (InvalidTag, ValueError):
                continue
        names = ", ".join(sorted(usable))
        sentence = f"the message encrypted for {names} does not fit the private key, or was modified"
        raise Unreadable(sentence, context)

    def _data_key(self, name: str, encrypted: bytes) -> bytes | None:
        known = self._data_keys.get(encrypted)
        if known is not None:
            return known
        try:
            data_key = self._private_keys[name].decrypt(encrypted, _oaep())
        except ValueError:
            return None
        self._data_keys[encrypted] = data_key
        if len(self._data_keys) > DATA_KEYS_MAX:
            self._data_keys.popitem(last=False)
        return data_key


def _public_key(name: str, pem: bytes) -> RSAPublicKey:
    serialization, rsa = _library()
    key: RSAPublicKey = _checked(
        name, "public", rsa.RSAPublicKey, lambda: serialization.load_pem_public_key(pem)
    )
    return key


def _private_key(name: str, pem: bytes) -> RSAPrivateKey:
    serialization, rsa = _library()
    key: RSAPrivateKey = _checked(
        name, "private", rsa.RSAPrivateKey, lambda: serialization.load_pem_private_key(pem, None)
    )
    return key


def _checked(name: str, kind: str, type_: type, load: Callable[[], Any]) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        key = load()
    except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
        raise ValueError(f"{kind} key {name!r} must be an RSA key as PEM: {problem}") from None
    if not isinstance(key, type_):
        raise ValueError(f"{kind} key {name!r} must be an RSA key, not {type(key).__name__}")
    return key


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError as problem:
        raise ValueError("to encrypt and decrypt messages, install cryptography") from problem
    return serialization, rsa


def _oaep() -> OAEP:
    """Return the padding that other clients use."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    return padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)


def _aes(data_key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(data_key)
