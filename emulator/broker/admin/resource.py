"""The resources of the HTTP port as data: rows for routing, the OpenAPI document and docs/ADMIN.md.

A row is a path with an operation for each supported method. A path is `/`, then segments separated by `/`: a literal
word, or `{name}` for any segment that is not empty. Of two rows that match a request and have its method, the row is
used that has a literal word at the first segment where only one of them has one. Overlapping rows with a common method
and literal words at the same segments are rejected, so the order of rows has no effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.authorization import Action, ResourceScope
from emulator.core.authorization.rule import Permission
from emulator.model.values import NON_PERSISTENT, PERSISTENT
from emulator.net.http_server import HttpError, RequestHead, Response

Handler = Callable[[AdminRequest], Awaitable[Content]]
_SCOPES: Final = (ResourceScope.TOPIC, ResourceScope.NAMESPACE, ResourceScope.TENANT)
"""Scopes that a path can name, the narrowest first."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter. Unknown parameters of a request are ignored: clients of other versions may send them."""

    name: str
    doc: str
    type: type[bool] | type[str] | type[int] = bool

    def parse(self, text: str) -> Any:
        """Return the parsed value. HttpError 400 for invalid text."""
        if self.type is str:
            return text
        if self.type is int:
            if text.isascii() and text.isdigit() and len(text) < 19:
                return int(text)
            raise HttpError(400, f"{self.name}: {text!r} must be a whole number")
        if text.lower() in ("true", "false", ""):
            return text.lower() == "true"
        raise HttpError(400, f"{self.name}: {text!r} must be true or false")


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request."""

    parse: Callable[[Any], Any]
    """Converts decoded JSON to the handler's argument. HttpError for an invalid body."""
    schema: Mapping[str, Any]
    """JSON Schema of the body, for the OpenAPI document."""
    or_text: bool = False
    """Whether a body that is not JSON is accepted as text: some of Pulsar's tools do not quote it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of one method of a row."""

    run: Handler
    doc: str
    action: Action
    permission: Permission | None = None
    """The permission that it requires; None: the one that follows from the path (`Resource.permission_of`)."""
    query: tuple[Query, ...] = ()
    body: Body | None = None
    text: bool = False
    """Whether the response is plain text, not JSON."""
    empty: bool = False
    """For the documentation: whether the response is 204 without a body."""

    async def respond(self, request: AdminRequest) -> Response:
        """Execute the request; None from the handler is a response 204 without a body."""
        content = await self.run(request)
        if isinstance(content, Response):
            return content
        return Response(status=204) if content is None else Response(content, text=self.text)


def reads(
    run: Handler,
    doc: str,
    *query: Query,
    body: Body | None = None,
    text: bool = False,
    permission: Permission | None = None,
) -> Operation:
    """Return an operation that changes nothing."""
    return Operation(run, doc, Action.READ, permission, query, body, text=text)


def changes(
    run: Handler,
    doc: str,
    *query: Query,
    body: Body | None = None,
    empty: bool = True,
    permission: Permission | None = None,
) -> Operation:
    """Return an operation that changes something."""
    return Operation(run, doc, Action.CHANGE, permission, query, body, empty=empty)


@dataclass(frozen=True, slots=True)
class Resource:
    """A row: a path, and its operation for each method."""

    path: str
    get: Operation | None = None
    put: Operation | None = None
    post: Operation | None = None
    delete: Operation | None = None
    stored_only: str = ""
    """Why the resource is stored and returned without any effect. Its responses have a header that refers to the
    documentation. Empty for other resources."""
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        assert self.path.startswith("/"), f"{self.path}: must begin with /"
        object.__setattr__(self, "segments", tuple(self.path[1:].split("/")))
        assert all(self.segments), f"{self.path}: has an empty segment"
        assert len(set(self.names)) == len(self.names), f"{self.path}: names a segment twice"
        assert self.operations, f"{self.path}: has no method"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(segment[1:-1] for segment in self.segments if segment.startswith("{"))

    @property
    def _has_domain(self) -> bool:
        return len(self.segments) > 2 and self.segments[2] in (PERSISTENT, NON_PERSISTENT)

    @property
    def scope(self) -> ResourceScope:
        """The narrowest object that the path names."""
        return next((scope for scope in _SCOPES if scope.value in self.names), ResourceScope.REGION)

    def permission_of(self, operation: Operation) -> Permission:
        """Return the permission that an operation of this row requires. One that states none is reserved for the admins
        of the tenant that the path names, and for superusers if it names none or is a path of the emulator."""
        if operation.permission is not None:
            return operation.permission
        is_of_tenant = self.scope is not ResourceScope.REGION and self.segments[0] != "geoemu"
        return Permission.TENANT_ADMIN if is_of_tenant else Permission.SUPERUSER

    @property
    def operations(self) -> dict[str, Operation]:
        """Method in capitals -> its operation."""
        methods = {"GET": self.get, "PUT": self.put, "POST": self.post, "DELETE": self.delete}
        return {method: operation for method, operation in methods.items() if operation is not None}

    def match(self, path: tuple[str, ...]) -> dict[str, str] | None:
        """Return the named segments of `path`; None if it does not match this row. A domain that is a literal word is
        included as `domain`."""
        if len(path) != len(self.segments):
            return None
        found = {"domain": self.segments[2]} if self._has_domain else {}
        for expected, actual in zip(self.segments, path, strict=True):
            if expected.startswith("{"):
                if not actual:
                    return None
                found[expected[1:-1]] = actual
            elif expected != actual:
                return None
        return found

    @property
    def literals(self) -> tuple[bool, ...]:
        """Whether each segment of the path is a literal word. Of two matching rows, the one with the greater value is
        used."""
        return tuple(not one.startswith("{") for one in self.segments)

    @property
    def shape(self) -> tuple[str, ...]:
        """The path without the names of its segments. Two rows with equal shapes match the same requests, and none of
        them is preferred; of two other rows that match a request, one has the earlier literal word."""
        return tuple("{}" if one.startswith("{") else one for one in self.segments)


def stored_only(reason: str, *rows: Resource) -> tuple[Resource, ...]:
    """Return the rows, marked as stored and returned without any effect, for this reason."""
    return tuple(replace(row, stored_only=reason) for row in rows)


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """The row and operation of a request, with its parsed path and query."""

    resource: Resource
    operation: Operation
    names: dict[str, str]
    query: dict[str, Any]

    @property
    def permission(self) -> Permission:
        """The permission that the request requires."""
        return self.resource.permission_of(self.operation)


class RouteTable:
    """All rows, for routing. ValueError when two rows overlap."""

    def __init__(
        self, resources: Iterable[Resource], absent: Mapping[str, tuple[int, str]] | None = None
    ) -> None:
        """`absent`: prefix of the paths of a service that a region does not have -> (status, reason) of the error."""
        self.resources: tuple[Resource, ...] = tuple(resources)
        self._absent = {split_path(path): response for path, response in (absent or {}).items()}
        self._by_length: dict[int, list[Resource]] = {}
        known: dict[tuple[str, tuple[str, ...]], Resource] = {}
        for resource in self.resources:
            self._by_length.setdefault(len(resource.segments), []).append(resource)
            shape = resource.shape
            for method in resource.operations:
                other = known.setdefault((method, shape), resource)
                if other is not resource:
                    raise ValueError(f"{resource.path} and {other.path} match the same request")

    def find(self, head: RequestHead) -> RouteMatch:
        """Return the row of a request. HttpError 405 if no row with this path has the method, 404 or the status of an
        absent service if there is no row, 400 for an invalid path or query."""
        target, _, query = head.target.partition("#")[0].partition("?")
        path = split_path(target)
        matches = [
            (resource, names)
            for resource in self._by_length.get(len(path), ())
            if (names := resource.match(path)) is not None
        ]
        if not matches:
            raise self._not_found(target, path)
        matches.sort(key=lambda match: match[0].literals, reverse=True)
        method = "GET" if head.method == "HEAD" else head.method
        for resource, names in matches:
            operation = resource.operations.get(method)
            if operation is not None:
                return RouteMatch(resource, operation, names, parse_query(operation, query))
        methods = {method for resource, _ in matches for method in resource.operations}
        allow = sorted(methods | ({"HEAD"} if "GET" in methods else set()))
        raise HttpError(
            405,
            f"{head.method} is not supported by {target}; supported: {', '.join(allow)}",
            headers=(("allow", ", ".join(allow)),),
        )

    def _not_found(self, target: str, path: tuple[str, ...]) -> HttpError:
        beginnings = (path[:length] for length in range(1, len(path) + 1))
        found = next((self._absent[one] for one in beginnings if one in self._absent), None)
        return HttpError(*(found or (404, f"{target} is not supported by this region")))


def split_path(target: str) -> tuple[str, ...]:
    """Return the segments of a path, unquoted after splitting, so that an encoded slash stays inside its segment.
    Trailing slashes are ignored. HttpError 400 for a segment that is not UTF-8."""
    scheme, separator, rest = target.partition("://")
    if separator and scheme.isalpha():
        target = rest.partition("/")[2]  # an absolute URL, as clients send it to proxies
    try:
        return tuple(
            unquote(part, errors="strict") for part in target.removeprefix("/").rstrip("/").split("/")
        )
    except UnicodeDecodeError:
        raise HttpError(400, f"{target}: an encoded name must be UTF-8") from None


def parse_query(operation: Operation, query: str) -> dict[str, Any]:
    declared = {parameter.name: parameter for parameter in operation.query}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise HttpError(400, "the query must be UTF-8 and have 100 fields at most") from None
    values = dict(reversed(pairs))  # of a repeated parameter, the first value counts, as in JAX-RS
    return {name: declared[name].parse(text) for name, text in values.items() if name in declared}
