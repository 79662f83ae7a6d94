"""Names in Kafka.

A region has one topic for its key-value part, the key topic, and one for the log of each Pulsar topic:

    <prefix>.<region>.keys
    <prefix>.<region>.<ledger id>.<name of the Pulsar topic>

The ledger id gives a Pulsar topic that is deleted and created again another name: Kafka removes a deleted topic
asynchronously, and no caller has to wait for that. Kafka allows letters, digits, '.', '_' and '-'. Everything else,
and '.' and '_' themselves (Kafka treats names as equal that differ in these two only), is written as '_' and two
hexadecimal digits for each byte of UTF-8, so that the name can be decoded.

Keys in the key topic: `value/<key>`, `log/<Pulsar topic>`, `ledger_id`, `fence`, `buried`.
"""

from __future__ import annotations

import re
from hashlib import sha256

NAME_LENGTH_MAX = 249
"""Maximum length of a topic name in Kafka."""
_HASH_LENGTH = 16

FENCE_KEY = b"fence"
"""Key of the fence of an owner, in every topic. A record of a log that has a key is no entry."""
BURIED_KEY = b"buried"
"""Key of the record that fences an older owner with another producer id (ownership.py)."""
LEDGER_ID_KEY = b"ledger_id"
"""Key of the largest ledger id assigned so far."""
VALUE_PREFIX = b"value/"
LOG_PREFIX = b"log/"


def is_legal(prefix: str) -> bool:
    """Return whether a topic prefix is valid: 1 to 60 letters, digits, '.' and '-', not only dots."""
    return re.fullmatch(r"[A-Za-z0-9.-]{1,60}", prefix) is not None and prefix.strip(".") != ""


def encode(name: str) -> str:
    """Escape a name: `persistent://a/b/c` -> `persistent_3a_2f_2fa_2fb_2fc`."""
    return re.sub(r"[^A-Za-z0-9-]", lambda odd: "".join(f"_{byte:02x}" for byte in odd[0].encode()), name)


def decode(text: str) -> str:
    """Inverse of `encode`."""
    escapes = re.sub(rb"_([0-9a-f]{2})", lambda odd: bytes.fromhex(odd[1].decode()), text.encode())
    return escapes.decode()


def region_prefix(prefix: str, region: str) -> str:
    return f"{prefix}.{encode(region)}."


def keys_topic(region_prefix: str) -> str:
    return f"{region_prefix}keys"


def log_topic(region_prefix: str, ledger_id: int, name: str) -> str:
    """Return the topic of a log. A name too long for Kafka is cut and gets a digest; the key topic has the full one."""
    topic = f"{region_prefix}{ledger_id}.{encode(name)}"
    if len(topic) <= NAME_LENGTH_MAX:
        return topic
    digest = sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{topic[: NAME_LENGTH_MAX - _HASH_LENGTH - 1]}-{digest}"


def log_key(name: str) -> bytes:
    return LOG_PREFIX + name.encode()


def ledger_id_of(region_prefix: str, topic: str) -> int | None:
    """Return the ledger id in the name of a log's topic; None: it is no log of this region."""
    number, _, rest = topic.removeprefix(region_prefix).partition(".")
    return int(number) if topic.startswith(region_prefix) and number.isdecimal() and rest else None
