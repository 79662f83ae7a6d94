"""Settings of a region's Kafka: `bootstrap_servers` and `options` of the log's configuration."""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from emulator.errors import ConfigurationError, Problem
from emulator.storage.kafka.names import is_legal

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True)
class Options:
    """The keys of `options`. Those of TLS and SASL have the names that kafka-python uses."""

    topic_prefix: str = "geoemu"
    """Prefix of all topic names. Each topology in a Kafka needs its own."""
    replication_factor: int = -1
    """Replicas of each topic; -1: the default of the Kafka brokers."""
    topic_config: dict[str, str] = field(default_factory=dict)
    """Settings of created topics, e.g. `flush.messages: "1"`: fsync before acknowledging."""
    open_timeout_ms: int = 30_000
    """Time for which a starting region waits for Kafka until its key topic exists."""
    request_timeout_ms: int = 10_000
    """Timeout of connecting and of a response, after which the connection is closed and the request sent again."""
    security_protocol: str = "PLAINTEXT"
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = None


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Validated settings of a region's Kafka."""

    region: str
    addresses: tuple[tuple[str, int], ...]
    options: Options
    tls: ssl.SSLContext | None

    @classmethod
    def read(cls, region: str, bootstrap_servers: str, options: Mapping[str, Any]) -> KafkaSettings:
        """Validate settings. ConfigurationError with all unknown and mistyped options, else all invalid ones."""
        problems: list[Problem] = []

        def wrong(key: str, value: object, rule: str, suggestion: str | None = None) -> None:
            problems.append(Problem(f"region {region}", None, f"log.{key}", str(value), rule, suggestion))

        addresses = _addresses(bootstrap_servers)
        if not addresses:
            wrong("bootstrap_servers", bootstrap_servers, "must be host:port[,host:port...]")
        types = {known.name: type(known.default) for known in fields(Options)}
        for key in options.keys() - types.keys():
            near = difflib.get_close_matches(key, types, n=1)
            wrong(f"options.{key}", options[key], "is not an option", *near)
        for key in options.keys() & types.keys():
            expected = types[key]
            if expected in (int, bool) and type(options[key]) is not expected:
                wrong(f"options.{key}", options[key], f"must be of type {expected.__name__}")
        if problems:
            raise ConfigurationError(problems)
        read = Options(**options)
        if not is_legal(read.topic_prefix):
            wrong(
                "options.topic_prefix", read.topic_prefix, "may have letters, digits, '.' and '-', at most 60"
            )
        if read.security_protocol not in _PROTOCOLS:
            wrong(
                "options.security_protocol", read.security_protocol, f"must be one of {', '.join(_PROTOCOLS)}"
            )
        if read.security_protocol.startswith("SASL"):
            if read.sasl_mechanism not in MECHANISMS:
                rule = f"is not supported; supported are {', '.join(MECHANISMS)}"
                wrong("options.sasl_mechanism", read.sasl_mechanism, rule)
            if not read.sasl_plain_username or read.sasl_plain_password is None:
                wrong("options.sasl_plain_username", "", "is required with SASL, and sasl_plain_password too")
        elif read.sasl_mechanism:
            wrong("options.sasl_mechanism", read.sasl_mechanism, "needs a security_protocol with SASL")
        tls = None
        if read.security_protocol.endswith("SSL"):
            try:
                tls = _tls_context(read)
            except (OSError, ssl.SSLError) as error:
                wrong("options.ssl_cafile", read.ssl_cafile, f"or a related option cannot be used: {error}")
        if problems:
            raise ConfigurationError(problems)
        return cls(region, addresses, read, tls)


def _addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Parse a list of addresses, IPv6 in brackets; empty if it is invalid."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(_DEFAULT_PORT)
        if not port.isdigit() or not host or int(port) > 0xFFFF:
            return ()
        found.append((host.strip("[]"), int(port)))
    return tuple(found)


def _tls_context(options: Options) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.ssl_cafile)
    context.check_hostname = options.ssl_check_hostname
    if options.ssl_certfile:
        context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile, options.ssl_password)
    return context
