"""The HTTP port of a region: routes requests to the rows of `resources` after the guard's check and authorization."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

from emulator.broker.admin.request import AdminContext, AdminRequest, Authorize, allow_all
from emulator.broker.admin.resource import Body, RouteMatch
from emulator.broker.admin.resources import TABLE
from emulator.broker.authentication.http_gate import HttpGate
from emulator.broker.authentication.sender import Sender, accept_all
from emulator.broker.authorizer import Requirement
from emulator.broker.explain.topics import NotKnown
from emulator.broker.links.emulation import EmulatedLink
from emulator.broker.metadata.tenancy import AlreadyExists, LimitReached, NotEmpty, NotFound
from emulator.broker.region import Region
from emulator.config.region import RegionConfig
from emulator.core.authorization.rule import Permission
from emulator.core.metadata.merge import Overruled
from emulator.errors import GoneMeanwhile, ProtocolError, ServerError, StorageError
from emulator.net.host_guard import HostGuard
from emulator.net.http_server import HttpConnection, HttpError, PreparedCall, RequestHead, Response
from emulator.net.network import Listener, Network

logger = logging.getLogger(__name__)

STORED_ONLY_HEADER = "x-geoemu-stored-only"
STORED_ONLY_PAGE = "docs/ADMIN.md#stored-without-effect"
"""Documentation of the resources that are stored without any effect."""
STATUS_BY_ERROR = {
    ServerError.AuthenticationError: 401,
    ServerError.AuthorizationError: 403,
    ServerError.TopicNotFound: 404,
    ServerError.SubscriptionNotFound: 404,
    ServerError.ConsumerNotFound: 404,
    ServerError.TransactionNotFound: 404,
    ServerError.NotAllowedError: 405,
    ServerError.ConsumerBusy: 409,
    ServerError.ProducerBusy: 409,
    ServerError.TransactionConflict: 409,
    ServerError.IncompatibleSchema: 409,
    ServerError.InvalidTopicName: 412,
    ServerError.InvalidTxnStatus: 412,
    ServerError.TooManyRequests: 429,
    ServerError.MetadataError: 503,
    ServerError.PersistenceError: 503,
    ServerError.ServiceNotReady: 503,
}
"""ServerError -> HTTP status; 400 for all others."""
REFUSED_WITH_401 = frozenset(
    {Permission.SUPERUSER, Permission.PRODUCE, Permission.CONSUME, Permission.LOOKUP, Permission.ANY_ROLE}
)
"""Permissions for lack of which Pulsar responds with 401. Its response for the others is 403."""


def admin_guard(config: RegionConfig) -> HostGuard:
    """Return the guard of a region's HTTP port, which rejects changes by web pages of other sites."""
    names = (config.advertised_host, config.bind_host, config.internal_host, *config.admin_hosts)
    remedy = "; add other names to admin_hosts in the topology"
    return HostGuard(f"region {config.region}", names, remedy=remedy)


class Admin:
    """The HTTP application of one region."""

    def __init__(
        self, region: Region, links: dict[str, EmulatedLink], authorize: Authorize | None = None
    ) -> None:
        gate = region.gate
        authenticate = accept_all if gate is None else HttpGate(gate, region.config.run_secret).authenticate
        self._context = AdminContext(region, links, authorize or _authorize_of(region), authenticate)
        self._guard = admin_guard(region.config)
        self._listeners: list[Listener] = []

    async def start(self) -> int:
        """Begin to listen, and return the port without TLS; 0: it is closed. OSError when a port is not available."""
        region = self._context.region
        config, environment = region.config, region.environment
        if config.has_plain_ports:
            self._context.port = await self._listen_on(environment.network, config.admin_port)
        if environment.tls_network is not None:
            self._context.port_tls = await self._listen_on(environment.tls_network, config.admin_port_tls)
        return self._context.port

    async def _listen_on(self, network: Network, port: int) -> int:
        region = self._context.region
        listener = await network.listen(
            lambda: HttpConnection(self, region.spawn, region.resources.http_connections),
            region.config.bind_host,
            port,
        )
        self._listeners.append(listener)
        return listener.port

    @property
    def port_tls(self) -> int:
        """The port with TLS; 0: there is none."""
        return self._context.port_tls

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()

    def begin(self, head: RequestHead) -> PreparedCall:
        """Check a request as far as possible without its body. HttpError for a rejected request."""
        self._guard.check(head)
        sender = self._context.authenticate(head)
        match = TABLE.find(head)
        self._authorize(head, sender, match)
        _check_media_type(head)

        async def call(content: bytes) -> Response:
            return await self._run(head, sender, match, content)

        return call

    def _authorize(self, head: RequestHead, sender: Sender, match: RouteMatch) -> None:
        """Raise HttpError for a sender without the permission that the row requires, and for an invalid name."""
        target = self._context.target(match.names)
        try:
            self._context.authorize(sender, Requirement(match.permission, target))
        except ProtocolError as problem:
            path = head.target.partition("?")[0]
            logger.info("refused: %s %r: %s", head.method, path[:200], problem)
            raise _http_error(problem, match.permission) from None

    async def _run(self, head: RequestHead, sender: Sender, match: RouteMatch, content: bytes) -> Response:
        body = None if match.operation.body is None else _parse_body(match.operation.body, content)
        accept = head.headers.get("accept", "")
        call = AdminRequest(
            self._context, match.names, match.query, body, head.host, head.local_address, accept, sender
        )
        try:
            response = await match.operation.respond(call)
        except ProtocolError as problem:
            raise _http_error(problem) from None
        except (NotFound, NotKnown) as problem:
            raise HttpError(404, str(problem)) from None
        except (AlreadyExists, NotEmpty, Overruled) as problem:
            raise HttpError(409, str(problem)) from None
        except LimitReached as problem:
            raise HttpError(412, str(problem)) from None
        except GoneMeanwhile as problem:
            try:
                raise await call.gone_error(problem) from None
            except ProtocolError as refusal:
                raise _http_error(refusal) from None
        except StorageError as failure:
            logger.warning("%s %s: %s", head.method, match.resource.path, failure)
            raise HttpError(503, f"a storage operation failed: {failure}") from None
        if match.resource.stored_only:
            return replace(response, headers=(*response.headers, (STORED_ONLY_HEADER, STORED_ONLY_PAGE)))
        return response


def _authorize_of(region: Region) -> Authorize:
    authorizer = region.authorizer
    if authorizer is None:
        return allow_all
    return lambda sender, requirement: authorizer.check(sender.trust, sender.principal, requirement)


def _http_error(problem: ProtocolError, permission: Permission | None = None) -> HttpError:
    status = STATUS_BY_ERROR.get(problem.code, 400)
    if problem.code is ServerError.AuthorizationError and permission in REFUSED_WITH_401:
        status = 401
    return HttpError(status, str(problem), (("www-authenticate", "Bearer"),) if status == 401 else ())


def _check_media_type(head: RequestHead) -> None:
    """Raise HttpError 415 for a body that is not declared as JSON: an HTML form of another site cannot do that."""
    kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    if head.has_body and not is_json:
        raise HttpError(415, f"a body must be declared as application/json, not as {kind or 'nothing'!r}")


def _parse_body(body: Body, content: bytes) -> Any:
    """Parse a body. An empty body means the same as `null`, because clients send both. HttpError 400 for text that is
    not JSON, unless the operation accepts text."""
    try:
        decoded = json.loads(content) if content.strip() else None
    except (ValueError, RecursionError) as problem:
        if body.or_text and content.isascii():
            return body.parse(content.decode())
        raise HttpError(400, f"the body is not JSON: {problem}") from None
    return body.parse(decoded)
