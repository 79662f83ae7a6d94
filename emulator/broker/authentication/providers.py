"""The configured providers of a region, by the name of their method. Libraries are imported for these only."""

from __future__ import annotations

from pathlib import Path

from emulator.broker.authentication.certificates import CertificateProvider
from emulator.broker.authentication.credentials import Provider
from emulator.config.security import AuthenticationConfig

TOKEN, BASIC, TLS = "token", "basic", "tls"


def providers_of(config: AuthenticationConfig) -> dict[str, Provider]:
    """Return the provider of each method that is configured. Raises OSError or ValueError if a file is unreadable or
    invalid, or a library is not installed: the region must not start without a method that it should have."""
    providers: dict[str, Provider] = {}
    try:
        if config.token is not None:
            from emulator.broker.authentication.token import TokenProvider

            providers[TOKEN] = TokenProvider(config.token)
        if config.basic_users:
            from emulator.broker.authentication.basic import BasicProvider

            providers[BASIC] = BasicProvider(Path(config.basic_users))
    except ImportError as missing:
        raise ValueError(
            f"authentication needs the package {missing.name}: pip install 'geoemu[security]'"
        ) from missing
    if config.tls:
        providers[TLS] = CertificateProvider()
    return providers
