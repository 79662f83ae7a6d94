"""Settings of Pulsar's standalone broker for TLS, authentication and authorization, as the `security` of a region.

What Pulsar's own internal client needs (`brokerClient…`) has no effect: a region needs no credentials for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from emulator.broker.standalone.secret_values import as_file
from emulator.broker.standalone.setting_reader import SettingReader
from emulator.config.security import (
    AuthenticationConfig,
    AuthorizationConfig,
    SecurityConfig,
    TlsConfig,
    TokenConfig,
)
from emulator.net.tls import ClientCertificates

SECURITY_DEFAULTS: Final[Mapping[str, str]] = {
    "authenticationEnabled": "false",
    "authenticationProviders": "",
    "authenticationRefreshCheckSeconds": "60",
    "anonymousUserRole": "",
    "tokenSecretKey": "",
    "tokenPublicKey": "",
    "tokenPublicAlg": "",
    "tokenAuthClaim": "sub",
    "tokenAudienceClaim": "",
    "tokenAudience": "",
    "basicAuthConf": "",
    "authorizationEnabled": "false",
    "superUserRoles": "",
    "proxyRoles": "",
    "authorizationAllowWildcardsMatching": "false",
    "tlsEnabled": "false",
    "brokerServicePortTls": "",
    "webServicePortTls": "",
    "tlsCertificateFilePath": "",
    "tlsKeyFilePath": "",
    "tlsTrustCertsFilePath": "",
    "tlsRequireTrustedClientCertOnConnect": "false",
    "tlsAllowInsecureConnection": "false",
}
"""Settings of security that a region applies, with their defaults."""
_PACKAGE: Final = "org.apache.pulsar.broker.authentication."
TOKEN, BASIC, TLS = (f"{_PACKAGE}AuthenticationProvider{name}" for name in ("Token", "Basic", "Tls"))
PROVIDERS: Final = (TOKEN, BASIC, TLS)
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
TLS_PORTS: Final = ("brokerServicePortTls", "webServicePortTls")


def security_config(read: SettingReader, data: Path) -> SecurityConfig:
    """Return the security of a region; secrets in settings themselves are written to files in `data`. Raises
    ValueError, naming setting and rule, for settings that contradict each other or that a region cannot apply."""
    providers = _providers(read)
    return SecurityConfig(
        tls=_tls(read, providers),
        authentication=_authentication(read, providers, data) if providers else None,
        authorization=_authorization(read, providers),
    )


def tls_port(read: SettingReader, name: str) -> int:
    """Return a port with TLS; 0: none is set."""
    return read.number(name, 1, 65_535) if read.text(name) else 0


def _providers(read: SettingReader) -> tuple[str, ...]:
    """Return the classes that authenticate clients; none if authentication is off."""
    if not read.flag("authenticationEnabled"):
        return ()
    names = read.names("authenticationProviders")
    for name in names:
        if name not in PROVIDERS:
            raise ValueError(f"authenticationProviders={name}: a region has {', '.join(PROVIDERS)}")
    if not names:
        raise ValueError(f"authenticationEnabled=true: set authenticationProviders, for example to {TOKEN}")
    return names


def _tls(read: SettingReader, providers: tuple[str, ...]) -> TlsConfig | None:
    if not any(read.text(name) for name in TLS_PORTS):
        if read.flag("tlsEnabled") or TLS in providers:
            needs = "tlsEnabled=true" if read.flag("tlsEnabled") else f"authenticationProviders={TLS}"
            raise ValueError(f"{needs}: set {' and '.join(TLS_PORTS)}, for example to 6651 and 8443")
        return None
    certificate, key = (
        _existing(read, name, "PEM file of the region")
        for name in ("tlsCertificateFilePath", "tlsKeyFilePath")
    )
    trusted = read.text("tlsTrustCertsFilePath")
    if trusted:
        _existing(read, "tlsTrustCertsFilePath", "")
    return TlsConfig(certificate, key, trusted or certificate, _client_certificates(read, trusted, providers))


def _client_certificates(read: SettingReader, trusted: str, providers: tuple[str, ...]) -> ClientCertificates:
    """Return whether certificates of clients are requested: only with an authority that verifies them."""
    required = read.flag("tlsRequireTrustedClientCertOnConnect")
    if not trusted and (required or TLS in providers):
        needs = "tlsRequireTrustedClientCertOnConnect=true" if required else f"authenticationProviders={TLS}"
        raise ValueError(
            f"{needs}: set tlsTrustCertsFilePath to the authorities of the clients' certificates"
        )
    if read.flag("tlsAllowInsecureConnection"):
        if required or TLS in providers:
            raise ValueError(
                "tlsAllowInsecureConnection=true: a region verifies each certificate that it uses; "
                "remove it, or tlsRequireTrustedClientCertOnConnect and authentication by certificates"
            )
        return "none"
    if required:
        return "required"
    return "optional" if trusted else "none"


def _authentication(read: SettingReader, providers: tuple[str, ...], data: Path) -> AuthenticationConfig:
    users = (
        _secret(read, "basicAuthConf", data, f"{BASIC} needs an htpasswd file") if BASIC in providers else ""
    )
    return AuthenticationConfig(
        token=_token(read, data) if TOKEN in providers else None,
        basic_users=users,
        tls=TLS in providers,
        anonymous_role=read.text("anonymousUserRole"),
        refresh_seconds=read.number("authenticationRefreshCheckSeconds", 1),
    )


def _token(read: SettingReader, data: Path) -> TokenConfig:
    if read.text("tokenAudienceClaim") not in ("", "aud"):
        raise ValueError(
            f"tokenAudienceClaim={read.text('tokenAudienceClaim')}: a region reads the claim aud"
        )
    if read.text("tokenAudienceClaim") and not read.text("tokenAudience"):
        raise ValueError("tokenAudienceClaim=aud: set tokenAudience")
    claims = TokenConfig(role_claim=read.text("tokenAuthClaim"), audience=read.text("tokenAudience"))
    if read.text("tokenSecretKey"):  # it outranks the public key, as in Pulsar
        return replace(claims, secret_key=_secret(read, "tokenSecretKey", data, ""))
    algorithm = read.text("tokenPublicAlg")
    if algorithm and algorithm not in ALGORITHMS:
        raise ValueError(f"tokenPublicAlg={algorithm}: must be one of {', '.join(ALGORITHMS)}")
    key = _secret(read, "tokenPublicKey", data, f"{TOKEN} needs it, or tokenSecretKey")
    return replace(claims, public_key=key, algorithms=(algorithm,) if algorithm else ())


def _authorization(read: SettingReader, providers: tuple[str, ...]) -> AuthorizationConfig | None:
    if not read.flag("authorizationEnabled"):
        return None
    if not providers:
        raise ValueError("authorizationEnabled=true: requires authenticationEnabled=true")
    return AuthorizationConfig(
        superusers=read.names("superUserRoles"),
        proxy_roles=read.names("proxyRoles"),
        wildcards=read.flag("authorizationAllowWildcardsMatching"),
    )


def _secret(read: SettingReader, name: str, data: Path, purpose: str) -> str:
    """Return the path of a file with a secret."""
    if not read.text(name):
        raise ValueError(f"{name}: {purpose}; it is not set")
    try:
        path = as_file(read.text(name), data / "secrets" / name)
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from None
    if not path.is_file():
        raise ValueError(f"{name}: there is no file {path}")
    return str(path)


def _existing(read: SettingReader, name: str, purpose: str) -> str:
    path = read.text(name)
    if not path:
        raise ValueError(f"{name}: a port with TLS needs the {purpose}; it is not set")
    if not Path(path).is_file():
        raise ValueError(f"{name}={path}: there is no such file")
    return path
