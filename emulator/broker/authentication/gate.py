"""The gate of the binary port: decides which roles a client's CONNECT proves.

    CONNECT method=token data=eyJ…   ──▶   provider of the method: role and expiry, or a refusal
    original_principal=ana           ──▶   only a proxy may name the client for which it acts
                                     ◀──   CONNECTED, or ERROR and the end of the connection

Code behind the gate uses the `Principal` of the connection only. `refresh` asks again when a credential has expired.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from emulator.broker.authentication.credentials import Credential, Provider, Refused, TooManyFailures
from emulator.broker.authentication.providers import BASIC, TOKEN, providers_of
from emulator.broker.authentication.refusals import REGION, RefusedAuthentications
from emulator.config.security import SecurityConfig
from emulator.core.flow.failed_attempts import FailedAttempts, source_of
from emulator.model.principals import Principal
from emulator.wire.commands import Connect

logger = logging.getLogger(__name__)

GUESSABLE: Final = (TOKEN, BASIC)
"""Methods whose credentials a client could guess."""
GUESSES: Final = ("malformed", "signature", "credentials")
"""Reasons of wrong credentials. The others are those of genuine ones, such as an expired token."""
NO_METHODS: Final = ("", "none")
"""Names of the method of clients without credentials."""


@dataclass(frozen=True, slots=True)
class Session:
    """What the credentials of one connection have proved."""

    method: str
    credential: Credential
    original: Credential | None = None
    """The client for which a proxy acts."""
    label: str = ""
    """The method as a label of metrics."""
    region: str = ""
    """The other region of a link; empty: a client."""
    can_refresh: bool = False
    """Whether the client responds to AUTH_CHALLENGE when its credential has expired."""

    @property
    def principal(self) -> Principal:
        return Principal(self.credential.role, "" if self.original is None else self.original.role)

    @property
    def expires(self) -> bool:
        """Whether the session may expire at some time."""
        return any(one.expires_ms is not None for one in (self.credential, self.original) if one is not None)


class ClientGate:
    """Authenticates the clients of one region."""

    def __init__(
        self,
        security: SecurityConfig,
        wall_clock_ms: Callable[[], int],
        refusals: RefusedAuthentications,
        failures_per_host_max: int = 0,
    ) -> None:
        """Read keys and users. Raises OSError or ValueError if that is impossible. `failures_per_host_max`: of wrong
        credentials per minute; 0: unlimited."""
        assert security.authentication is not None
        self.providers: Mapping[str, Provider] = providers_of(security.authentication)
        self.refresh_seconds: float = security.authentication.refresh_seconds
        self.wall_clock_ms = wall_clock_ms
        self.refusals = refusals
        self._failures = FailedAttempts(failures_per_host_max)
        self.anonymous_role = security.authentication.anonymous_role
        authorization = security.authorization
        self._proxy_roles = frozenset(() if authorization is None else authorization.proxy_roles)
        self._superusers = None if authorization is None else frozenset(authorization.superusers)
        self._regions_have_tokens = bool(security.authentication.region_token)

    def admit(self, greeting: Connect, certificate: Any, host: str) -> Session:
        """Return the session of a client at an address. ProtocolError, which ends the connection, for any other."""
        method = greeting.auth_method_name
        try:
            credential = self.verify_from(host, method, greeting.auth_data, certificate)
            original = self._original(credential.role, greeting)
        except Refused as refused:
            raise self.refusals.error(self.label(method), refused) from None
        label, can_refresh = self.label(method), greeting.can_refresh_credentials
        return Session(method, credential, original, label, can_refresh=can_refresh)

    def admit_region(self, name: str, token: bytes) -> Session | None:
        """Return the session of a region that proved that it knows the run's secret; None if regions present no tokens.
        ProtocolError, which ends the connection, for one whose token is refused."""
        if not self._regions_have_tokens:
            return None
        try:
            if not token:
                raise Refused("missing", f"region {name!r} presents no token")
            credential = self.verify(TOKEN, token, None)
            if self._superusers is not None and credential.role not in self._superusers:
                raise Refused("role", f"the role {credential.role!r} of region {name!r} is no superuser")
        except Refused as refused:
            raise self.refusals.region_error(name, refused) from None
        self.refusals.region_admitted(name)
        return Session(TOKEN, credential, label=REGION, region=name)

    def renew(self, session: Session, method: str, data: bytes, certificate: Any, host: str) -> Session:
        """Return the session with the credential of an AUTH_RESPONSE. ProtocolError, which ends the connection, for
        another method or role, or a credential that is refused."""
        try:
            if method != session.method:
                raise Refused("changed-method", "a connection cannot change its authentication method")
            credential = self.verify_from(host, method, data, certificate)
            if credential.role != session.credential.role:
                raise Refused("changed-role", "a connection cannot change its role")
        except Refused as refused:
            raise self.refusals.error(session.label, refused) from None
        return replace(session, credential=credential)

    def verify_from(self, host: str, method: str, data: bytes, certificate: Any) -> Credential:
        """Return the role that a client at an address proves. Refused for anything else, and while too many credentials
        of that address were wrong."""
        if method not in GUESSABLE or method not in self.providers:
            return self.verify(method, data, certificate)
        source, now = source_of(host), asyncio.get_running_loop().time()
        if wait_seconds := self._failures.wait_seconds(source, now):
            raise TooManyFailures(host, wait_seconds)
        try:
            return self.verify(method, data, certificate)
        except Refused as refused:
            if refused.reason in GUESSES:
                self._failures.note(source, now)
                if wait_seconds := self._failures.wait_seconds(source, now):
                    logger.warning("too many wrong credentials of %s: refused for %.1f s", host, wait_seconds)
            raise

    def verify(self, method: str, data: bytes, certificate: Any) -> Credential:
        """Return the proved role. Refused for anything else, also if a provider fails."""
        provider = self.providers.get(method)
        if provider is None:
            if self.anonymous_role:
                return Credential(self.anonymous_role)
            if method in NO_METHODS:
                raise Refused("missing", "this region requires authentication")
            accepted = ", ".join(self.providers) or "none"
            raise Refused("unknown-method", f"unknown authentication method; this region accepts {accepted}")
        try:
            return provider.verify(data, certificate, self.wall_clock_ms())
        except Refused:
            raise
        except Exception as bug:  # fail closed: an error of ours admits no client
            raise Refused("failure", f"authentication failed: {type(bug).__name__}") from bug

    def label(self, method: str) -> str:
        """Return the method as a label of metrics, which no client can choose."""
        return method if method in self.providers else "none" if method in NO_METHODS else "other"

    def check_original(self, role: str, original: str) -> str:
        """Return the role for which a sender acts, empty: for itself. Refused unless the sender is a proxy, and the
        other role is none; a proxy must name one."""
        if role not in self._proxy_roles:
            if original in ("", role):
                return ""
            raise Refused("proxy", f"role {role!r} is no proxy, and may act for no other role")
        if not original:
            raise Refused("proxy", f"role {role!r} is a proxy, and must name the client for which it acts")
        if original in self._proxy_roles:
            raise Refused("proxy", f"a proxy may not act for another proxy, {original!r}")
        return original

    def _original(self, role: str, greeting: Connect) -> Credential | None:
        """Return the credential of the client for which a proxy acts: proved by the client's own credential if the
        proxy forwards it; else the claim of the proxy."""
        named = greeting.original_principal
        if role not in self._proxy_roles or not greeting.original_auth_data:
            original = self.check_original(role, named)
            return Credential(original) if original else None
        proved = self.verify(greeting.original_auth_method, greeting.original_auth_data.encode(), None)
        if named not in ("", proved.role):
            raise Refused("proxy", "original_principal is not the role of original_auth_data")
        self.check_original(role, proved.role)
        return proved
