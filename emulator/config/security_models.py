"""The fields of `security:` in `topology.yaml`. Paths are relative to that file. See docs/SECURITY.md."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from emulator.config.config_model import ConfigModel
from emulator.config.yaml_errors import rule


def _check_variable(text: str) -> str:
    if text.startswith("env:") and not re.fullmatch(r"env:[A-Za-z_][A-Za-z0-9_]*", text):
        raise rule("must be a path, or env:NAME with the name of an environment variable")
    return text


SecretFile = Annotated[str, Field(min_length=1), AfterValidator(_check_variable)]
"""A path, or `env:NAME`: the content of an environment variable, which each start of a run reads."""


class TlsPart(ConfigModel):
    """TLS of all regions, for clients and between the regions. Files are PEM, or `env:NAME`, and are read again when
    they change."""

    certificate: SecretFile
    """Certificate of the regions, with its chain. It must be valid for their host names, of which it may have many."""
    key: SecretFile
    """Private key of the certificate, without a password."""
    authority: SecretFile
    """Certificates of the authorities that issue the certificates of regions and clients."""
    client_certificates: Literal["none", "optional", "required"] = "optional"
    """none: not requested. optional: verified if the client has one. required: connections without one fail."""
    plain_ports: bool = True
    """Whether the ports without TLS are open, too."""


Algorithm = Literal[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"
]


class TokenPart(ConfigModel):
    """Verification of tokens (JWT): by a secret key or a public key. Files may be `env:NAME`."""

    secret_key: SecretFile | None = None
    """Secret key (HS256), as `pulsar tokens create-secret-key` and `geoemu token --create` write it, or base64."""
    public_key: SecretFile | None = None
    """Public key (RSA or EC, PEM or DER), or the JSON Web Key Set of an OAuth2 issuer, which is read again for
    unknown keys."""
    algorithms: list[Algorithm] | None = Field(default=None, min_length=1)
    """Accepted algorithms. Default: HS256, RS256, ES256, as far as the key has them."""
    role_claim: str = Field(default="sub", min_length=1)
    """Claim that contains the role."""
    audience: str | None = Field(default=None, min_length=1)
    """Required audience. Default: not checked."""
    issuer: str | None = Field(default=None, min_length=1)
    """Required issuer. Default: not checked."""


class RegionsPart(ConfigModel):
    """Credentials of the regions among each other, besides the secret of the run."""

    token: SecretFile
    """Token that regions present to each other. It is read for each connection. File, or `env:NAME`."""


class AuthenticationPart(ConfigModel):
    """Authentication of clients. Without it every client may do everything."""

    token: TokenPart | None = None
    """Tokens (method `token`, `Authorization: Bearer`)."""
    basic: SecretFile | None = None
    """Users and the hashes of their passwords, as `htpasswd` writes them (method `basic`). File, or `env:NAME`."""
    tls: bool = False
    """Whether the common name of a client certificate is a role (method `tls`)."""
    anonymous_role: str | None = Field(default=None, min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")
    """Role of clients without a known method. Default: they are refused."""
    refresh_seconds: float = Field(default=60, gt=0, le=86_400, allow_inf_nan=False)
    """Interval at which expired credentials are requested again; Pulsar's authenticationRefreshCheckSeconds."""
    regions: RegionsPart | None = None
    """Credentials of the regions among each other. Default: only the secret of the run."""


Role = Annotated[str, Field(min_length=1)]


class AuthorizationPart(ConfigModel):
    """Authorization of clients by their roles, as by Pulsar's brokers. It needs `authentication`. Permissions on
    namespaces: `permissions` of `namespaces`, and the admin API."""

    superusers: list[Role] | None = None
    """Roles that may do everything. Default: none but the programs that control the run."""
    proxy_roles: list[Role] | None = None
    """Roles of proxies, which act for other roles: both need the permission. Default: none."""
    wildcards: bool = False
    """Whether a grant to `name*`, `*name` or `*` applies to all roles that match."""
    tenant_admins: dict[str, list[Role]] | None = None
    """Admin roles of tenants at the start of a run, by tenant. Default: none."""


class ClientPart(ConfigModel):
    """Credentials that geoemu's own programs present to regions: commands, scenarios, programs that read
    `geoemu env`."""

    certificate: SecretFile | None = None
    """Certificate of a client, with its chain (TLS). File, or `env:NAME`."""
    key: SecretFile | None = None
    """Private key of the certificate, without a password. File, or `env:NAME`."""
    token: SecretFile | None = None
    """Token of a client. It is read for each connection. File, or `env:NAME`."""
    basic: SecretFile | None = None
    """Name and password of a client, NAME:PASSWORD. File, or `env:NAME`."""


class SecurityPart(ConfigModel):
    """Security of all regions. Default: no TLS, and every client may do everything."""

    tls: TlsPart | None = None
    """TLS. Default: none."""
    authentication: AuthenticationPart | None = None
    """Authentication of clients. Default: none."""
    authorization: AuthorizationPart | None = None
    """Authorization of clients. Default: each role may do everything."""
    client: ClientPart | None = None
    """Credentials of geoemu's own programs. Default: none."""
