"""Security of a region at its start: TLS, authentication, authorization.

Everything secret is in files: `region.json` and `topology.json` contain paths only. A value that the topology takes
from an environment variable is written to a file of the run that only its owner can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from emulator.net.credentials import Credentials
from emulator.net.tls import Certificates, ClientCertificates


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Certificates of a region; all are paths of PEM files."""

    certificate: str
    """Certificate of the region, with the chain to its authority."""
    key: str
    authority: str
    """Certificates of the authorities whose certificates are trusted: those of clients and of other regions."""
    client_certificates: ClientCertificates = "optional"
    plain_ports: bool = True
    """Whether the ports without TLS are open, too."""

    @property
    def files(self) -> Certificates:
        return Certificates(self.authority, self.certificate, self.key)


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """Verification of tokens (JWT), as by Pulsar's AuthenticationProviderToken."""

    secret_key: str = ""
    """Path of the secret of HS256 tokens. Empty: `public_key` verifies tokens."""
    public_key: str = ""
    """Path of a PEM public key, or of a JSON Web Key Set of an OAuth2 issuer."""
    algorithms: tuple[str, ...] = ()
    """Accepted algorithms. Empty: HS256 with a secret; RS256 and ES256 with a public key."""
    role_claim: str = "sub"
    audience: str = ""
    """Required audience. Empty: not checked."""
    issuer: str = ""
    """Required issuer. Empty: not checked."""


@dataclass(frozen=True, slots=True)
class AuthenticationConfig:
    """Methods by which clients authenticate; a client that uses none of them has `anonymous_role`, or is refused."""

    token: TokenConfig | None = None
    basic_users: str = ""
    """Path of an htpasswd file. Empty: no basic authentication."""
    tls: bool = False
    """Whether the common name of a verified client certificate is a role."""
    anonymous_role: str = ""
    refresh_seconds: float = 60
    """Interval at which credentials are checked for expiry and requested again (AUTH_CHALLENGE)."""
    region_token: str = ""
    """Path of the token that this region presents to the other regions. Empty: only the secret of the run."""


def paths_of(config: AuthenticationConfig) -> dict[str, str]:
    """Return the files that regions read for authentication, by names for them."""
    token = config.token or TokenConfig()
    files = {
        "token-secret-key": token.secret_key,
        "token-public-key": token.public_key,
        "basic-users": config.basic_users,
        "region-token": config.region_token,
    }
    return {name: path for name, path in files.items() if path}


def with_paths(config: AuthenticationConfig, paths: Mapping[str, str]) -> AuthenticationConfig:
    """Return the configuration with other paths of the files that `paths_of` names."""
    token = config.token
    if token is not None:
        token = replace(
            token,
            secret_key=paths.get("token-secret-key", ""),
            public_key=paths.get("token-public-key", ""),
        )
    return replace(
        config,
        token=token,
        basic_users=paths.get("basic-users", ""),
        region_token=paths.get("region-token", ""),
    )


@dataclass(frozen=True, slots=True)
class AuthorizationConfig:
    """Roles with a meaning of their own; permissions of other roles are policies of tenants and namespaces."""

    superusers: tuple[str, ...] = ()
    proxy_roles: tuple[str, ...] = ()
    """Roles of proxies: a proxy needs the permission as well as the role for which it acts."""
    wildcards: bool = False
    """Whether a grant to `name*`, `*name` or `*` applies to all roles that begin or end so, or to all."""
    tenant_admins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tenant -> its admin roles at the start of a run."""


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Credentials that geoemu's own clients present to regions; all are paths."""

    certificate: str = ""
    """Certificate of the clients, with the chain to its authority. Empty: none."""
    key: str = ""
    token: str = ""
    """Path of a token. Empty: none."""
    basic: str = ""
    """Path of a name and its password. Empty: none."""


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """Each part that is None is off: no TLS, no authentication, every client may do everything."""

    tls: TlsConfig | None = None
    authentication: AuthenticationConfig | None = None
    authorization: AuthorizationConfig | None = None
    """Requires `authentication`."""
    client: ClientCredentials | None = None
    """Of geoemu's own clients; regions do not have them."""

    @property
    def of_clients(self) -> Certificates | None:
        """The files with which geoemu's own clients connect to the ports with TLS; None: there are no such ports."""
        if self.tls is None:
            return None
        own = self.client or ClientCredentials()
        return Certificates(self.tls.authority, own.certificate, own.key)

    @property
    def client_credentials(self) -> Credentials | None:
        """The credentials that geoemu's own clients present; None: regions do not authenticate clients, or the topology
        has no credentials."""
        if self.authentication is None or self.client is None:
            return None
        by_certificate = self.authentication.tls and bool(self.client.certificate)
        return Credentials(self.client.token, self.client.basic, by_certificate)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SecurityConfig:
        """Parse what `dataclasses.asdict` wrote. Raises TypeError or KeyError for anything else."""
        tls, authentication, authorization, client = (raw.get(part) for part in _PARTS)
        return cls(
            tls=None if tls is None else TlsConfig(**tls),
            authentication=None if authentication is None else _authentication(authentication),
            authorization=None if authorization is None else _authorization(authorization),
            client=None if client is None else ClientCredentials(**client),
        )


_PARTS = ("tls", "authentication", "authorization", "client")


def _authentication(raw: Mapping[str, Any]) -> AuthenticationConfig:
    token = raw.get("token")
    if token is None:
        return AuthenticationConfig(**raw)
    return AuthenticationConfig(
        **{**raw, "token": TokenConfig(**{**token, "algorithms": tuple(token["algorithms"])})}
    )


def _authorization(raw: Mapping[str, Any]) -> AuthorizationConfig:
    roles = {name: tuple(raw[name]) for name in ("superusers", "proxy_roles")}
    admins = {tenant: tuple(names) for tenant, names in raw.get("tenant_admins", {}).items()}
    return AuthorizationConfig(**{**raw, **roles, "tenant_admins": admins})


ENVIRONMENT: Final = "env:"
"""Begins the place of a secret that an environment variable contains; other places are paths."""
NO_SECURITY: Final = SecurityConfig()
