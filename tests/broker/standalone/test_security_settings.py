"""Pulsar's settings of TLS, authentication and authorization become the security of a region, or are refused."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from emulator.broker.standalone.security_settings import BASIC, TLS, TOKEN
from emulator.broker.standalone.settings import standalone_config
from emulator.config.region import RegionConfig
from tests.broker.authentication.tokens import PUBLIC_PEM, SECRET, secret_file
from tests.net import authority

PLAIN = {"authenticationEnabled": "true", "authenticationProviders": TOKEN}


def tls_settings() -> dict[str, str]:
    files = authority.server_files()
    return {
        "brokerServicePortTls": "6651",
        "webServicePortTls": "8443",
        "tlsCertificateFilePath": files.certificate,
        "tlsKeyFilePath": files.key,
        "tlsTrustCertsFilePath": files.authority,
    }


def test_without_settings_of_security_everything_is_off(tmp_path: Path) -> None:
    security = standalone_config({"tokenSecretKey": "unused", "superUserRoles": "admin"}, tmp_path).security
    assert (security.tls, security.authentication, security.authorization) == (None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_all_settings_together(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ana:$apr1$x$y")
    config = standalone_config(
        {
            **tls_settings(),
            "authenticationEnabled": "true",
            "authenticationProviders": f"{TOKEN}, {BASIC},{TLS}",
            "authenticationRefreshCheckSeconds": "5",
            "anonymousUserRole": "guest",
            "tokenSecretKey": f"file://{secret_file(tmp_path)}",
            "tokenAuthClaim": "role",
            "tokenAudienceClaim": "aud",
            "tokenAudience": "here",
            "basicAuthConf": str(users),
            "authorizationEnabled": "TRUE",
            "superUserRoles": "admin, test-user",
            "proxyRoles": "edge",
            "authorizationAllowWildcardsMatching": "true",
            "tlsRequireTrustedClientCertOnConnect": "true",
            "brokerClientAuthenticationParameters": "token:x",
        },
        tmp_path,
    )
    assert (config.service_port_tls, config.admin_port_tls) == (6651, 8443)
    tls, authentication, authorization = (
        config.security.tls,
        config.security.authentication,
        config.security.authorization,
    )
    assert tls is not None
    assert (tls.files, tls.client_certificates, tls.plain_ports) == (
        authority.server_files(),
        "required",
        True,
    )
    assert authentication is not None
    assert (authentication.tls, authentication.basic_users) == (True, str(users))
    assert (authentication.anonymous_role, authentication.refresh_seconds) == ("guest", 5)
    token = authentication.token
    assert token is not None
    assert (token.secret_key, token.role_claim, token.audience) == (secret_file(tmp_path), "role", "here")
    assert authorization is not None
    assert (authorization.superusers, authorization.proxy_roles) == (("admin", "test-user"), ("edge",))
    assert authorization.wildcards
    assert RegionConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    "value",
    [
        f"data:;base64,{base64.b64encode(SECRET).decode()}",
        f"data:application/octet-stream;base64,{base64.urlsafe_b64encode(SECRET).decode().rstrip('=')}",
        base64.b64encode(SECRET).decode(),
        f"data:,{SECRET.decode()}",
    ],
)
def test_a_key_in_the_setting_becomes_a_file_that_only_its_owner_reads(tmp_path: Path, value: str) -> None:
    for _ in range(2):  # a restart replaces it
        config = standalone_config({**PLAIN, "tokenSecretKey": value}, tmp_path)
    assert config.security.authentication is not None
    assert config.security.authentication.token is not None
    path = Path(config.security.authentication.token.secret_key)
    assert path.is_relative_to(tmp_path)
    assert path.read_bytes() == SECRET
    assert (path.stat().st_mode & 0o077, path.parent.stat().st_mode & 0o077) == (0, 0)


def test_a_long_public_key_in_the_setting_and_its_algorithm(tmp_path: Path) -> None:
    value = base64.b64encode(PUBLIC_PEM).decode()
    assert len(value) > 255, "longer than a file name"
    settings = {**PLAIN, "tokenPublicKey": value, "tokenPublicAlg": "ES256"}
    authentication = standalone_config(settings, tmp_path).security.authentication
    assert authentication is not None
    assert authentication.token is not None
    assert Path(authentication.token.public_key).read_bytes() == PUBLIC_PEM
    assert authentication.token.algorithms == ("ES256",)


@pytest.mark.parametrize(
    ("changes", "requested"),
    [
        ({}, "optional"),
        ({"tlsTrustCertsFilePath": ""}, "none"),
        ({"tlsAllowInsecureConnection": "true"}, "none"),
        ({"tlsRequireTrustedClientCertOnConnect": "true", "webServicePortTls": ""}, "required"),
    ],
)
def test_certificates_of_clients(tmp_path: Path, changes: dict[str, str], requested: str) -> None:
    tls = standalone_config({**tls_settings(), "tlsEnabled": "true", **changes}, tmp_path).security.tls
    assert tls is not None
    assert tls.client_certificates == requested


NO_FILE = "must be a path, file:///path, data:;base64,… or base64; there is no such file"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"authenticationProviders": ""}, "authenticationEnabled=true: set authenticationProviders"),
        (
            {"authenticationProviders": f"{TOKEN},my.Sasl"},
            "authenticationProviders=my.Sasl: a region has org",
        ),
        ({}, f"tokenPublicKey: {TOKEN} needs it, or tokenSecretKey; it is not set"),
        ({"tokenSecretKey": "file:///missing"}, "tokenSecretKey: there is no file /missing"),
        ({"tokenSecretKey": "file://host/missing"}, "tokenSecretKey: a file: URL must have the form"),
        ({"tokenSecretKey": "/missing.key"}, f"tokenSecretKey: {NO_FILE}"),
        ({"tokenSecretKey": "data:hunter2"}, "tokenSecretKey: a data: URL must have the form"),
        ({"tokenSecretKey": "data:;base64,$hunter2"}, f"tokenSecretKey: {NO_FILE}"),
        ({"tokenPublicKey": "/", "tokenPublicAlg": "none"}, "tokenPublicAlg=none: must be one of RS256"),
        ({"tokenSecretKey": "/", "tokenAudienceClaim": "who"}, "tokenAudienceClaim=who: a region reads the"),
        ({"tokenSecretKey": "/", "tokenAudienceClaim": "aud"}, "tokenAudienceClaim=aud: set tokenAudience"),
        ({"authenticationProviders": BASIC}, f"basicAuthConf: {BASIC} needs an htpasswd file; it is not set"),
        ({"authenticationProviders": TLS}, f"authenticationProviders={TLS}: set brokerServicePortTls and"),
        ({"authenticationEnabled": "yes"}, "authenticationEnabled=yes: must be true or false"),
        (
            {"authenticationEnabled": "false", "authorizationEnabled": "true"},
            "authorizationEnabled=true: requires authenticationEnabled=true",
        ),
    ],
)
def test_authentication_that_cannot_be_is_refused(
    tmp_path: Path, changes: dict[str, str], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}") as refusal:
        standalone_config({**PLAIN, **changes}, tmp_path)
    assert "hunter2" not in str(refusal.value), "it may be the secret"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"brokerServicePortTls": "", "webServicePortTls": "", "tlsEnabled": "true"},
            "tlsEnabled=true: set brokerServicePortTls and webServicePortTls, for example to 6651 and 8443",
        ),
        ({"brokerServicePortTls": "0"}, "brokerServicePortTls=0: must be a whole number from 1 to 65535"),
        ({"tlsKeyFilePath": ""}, "tlsKeyFilePath: a port with TLS needs the PEM file of the region"),
        ({"tlsCertificateFilePath": "/no"}, "tlsCertificateFilePath=/no: there is no such file"),
        ({"tlsTrustCertsFilePath": "/no"}, "tlsTrustCertsFilePath=/no: there is no such file"),
        (
            {"tlsTrustCertsFilePath": "", "tlsRequireTrustedClientCertOnConnect": "true"},
            "tlsRequireTrustedClientCertOnConnect=true: set tlsTrustCertsFilePath",
        ),
        (
            {**PLAIN, "authenticationProviders": TLS, "tlsTrustCertsFilePath": ""},
            f"authenticationProviders={TLS}: set tlsTrustCertsFilePath",
        ),
        (
            {"tlsAllowInsecureConnection": "true", "tlsRequireTrustedClientCertOnConnect": "true"},
            "tlsAllowInsecureConnection=true: a region verifies each certificate that it uses",
        ),
    ],
)
def test_tls_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        standalone_config({**tls_settings(), **changes}, tmp_path)
