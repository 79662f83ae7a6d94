"""The HTTP server of the dashboard, on the loopback interface.

Every request must name this server (Host, Origin), because any page in the browser can reach it. A request that changes
the run must also carry the token that the page contains: another program's page on this machine cannot read it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl

from emulator.dashboard.actions import perform, plan_failover
from emulator.dashboard.event_log import newest_events
from emulator.dashboard.observer import StatusObserver
from emulator.dashboard.views import list_frames, list_topics, show_explanation, show_topic
from emulator.errors import ConfigurationError, GeoemuError, Refused
from emulator.net.addresses import LOOPBACK
from emulator.net.host_guard import HostGuard
from emulator.net.http_connections import HttpConnections
from emulator.net.http_server import HttpConnection, HttpError, PreparedCall, RequestHead, Response
from emulator.net.network import Listener, SocketNetwork
from emulator.runtimes.contract import Runtime

TOKEN_HEADER: Final = "x-geoemu-token"
BODY_BYTES_MAX: Final = 4_096
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = (
    ("content-security-policy", _POLICY),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
)
"""Headers of every response."""
_KINDS: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_PAGE: Final = "dashboard.html"

Query = Mapping[str, str]
Handler = Callable[[Query, bytes], Awaitable[Any]]
"""Returns the JSON of a response, from the query and the body of a request."""


class DashboardServer:
    """Serves the page and its requests about one run. Implements the contract of `net.http_server.Application`."""

    def __init__(self, run: Runtime) -> None:
        self._run = run
        self._observer = StatusObserver(run)
        self._guard = HostGuard("the dashboard", guards_reads=True)
        self._token = secrets.token_urlsafe()
        self._files = _read_page_files(self._token)
        self._routes: dict[tuple[str, str], Handler] = {
            ("GET", "/api/state"): self._get_state,
            ("GET", "/api/topics"): self._get_topics,
            ("GET", "/api/topic"): self._get_topic,
            ("GET", "/api/explain"): self._get_explanation,
            ("GET", "/api/events"): self._get_events,
            ("GET", "/api/frames"): self._get_frames,
            ("POST", "/api/failover-plan"): self._post_plan,
            ("POST", "/api/actions"): self._post_action,
        }
        self._listener: Listener | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Requests under way."""
        self._changes: set[asyncio.Task[Any]] = set()
        """Changes of the run under way. Their requests may end before them, because a change must be recorded."""

    async def start(self, port: int) -> str:
        """Begin to listen, and return the URL of the page. OSError if the port is not available."""
        network = SocketNetwork()
        connections = HttpConnections()
        self._listener = await network.listen(
            lambda: HttpConnection(self, self._spawn, connections), LOOPBACK, port
        )
        return f"http://{LOOPBACK}:{self._listener.port}/"

    async def close(self) -> None:
        """Stop listening. Changes that are under way are completed and recorded; other requests are cancelled."""
        if self._listener is not None:
            self._listener.close()
        await asyncio.gather(*self._changes, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._observer.close()

    @property
    def changes_under_way(self) -> int:
        return len(self._changes)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def begin(self, head: RequestHead) -> PreparedCall:
        """Check a request before its body is read. HttpError for a rejected request."""
        try:
            return self._begin(head)
        except HttpError as problem:
            raise _with_headers(problem) from None

    def _begin(self, head: RequestHead) -> PreparedCall:
        self._guard.check(head)
        path, _, query = head.target.partition("#")[0].partition("?")
        method = "GET" if head.method == "HEAD" else head.method
        if method == "GET" and path in self._files:
            return _call(self._files[path])
        handler = self._routes.get((method, path))
        if handler is None:
            known = path in self._files or any(path == one for _, one in self._routes)
            raise HttpError(405 if known else 404, f"{method} {path[:200]} is not supported by the dashboard")
        if method == "POST":
            self._check_change(head)
        return _answer(handler, _parse_query(query))

    def _check_change(self, head: RequestHead) -> None:
        """Raise HttpError for a change that the page of this server did not request."""
        origin = head.headers.get("origin")
        if origin is not None and origin != f"http://{head.host}":
            raise HttpError(403, f"a page of {origin!r} may not change the run")
        token = head.headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise HttpError(403, "the token is missing or of another dashboard: reload the page")
        if head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HttpError(415, "a body must be declared as application/json")
        length = head.headers.get("content-length", "0")
        if len(length) > 9 or int(length) > BODY_BYTES_MAX:
            raise _body_too_large()

    # Requests of the page.

    async def _get_state(self, query: Query, body: bytes) -> Any:
        return await self._observer.latest()

    async def _get_topics(self, query: Query, body: bytes) -> Any:
        return await list_topics(self._run, query.get("contains", ""))

    async def _get_topic(self, query: Query, body: bytes) -> Any:
        return await show_topic(self._run, query.get("topic", ""), query.get("subscription", ""))

    async def _get_explanation(self, query: Query, body: bytes) -> Any:
        return await show_explanation(self._run, query)

    async def _get_events(self, query: Query, body: bytes) -> Any:
        return newest_events(self._run.run_dir, self._observer.changes)

    async def _get_frames(self, query: Query, body: bytes) -> Any:
        return list_frames()

    async def _post_plan(self, query: Query, body: bytes) -> Any:
        return await plan_failover(self._run, _parse_body(body))

    async def _post_action(self, query: Query, body: bytes) -> Any:
        change = asyncio.create_task(perform(self._run, _parse_body(body)))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return await asyncio.shield(change)


def _answer(handler: Handler, query: Query) -> PreparedCall:
    async def call(body: bytes) -> Response:
        if len(body) > BODY_BYTES_MAX:
            raise _with_headers(_body_too_large())
        try:
            return Response(await handler(query, body), headers=_HEADERS)
        except HttpError as problem:
            raise _with_headers(problem) from None
        except GeoemuError as problem:
            raise _with_headers(HttpError(_status_of(problem), str(problem))) from None

    return call


def _status_of(problem: GeoemuError) -> int:
    """Return the HTTP status of an error: of an unknown name, a refused request, or a failure of the run."""
    if isinstance(problem, ConfigurationError):
        return 404
    return 409 if isinstance(problem, Refused) else 502


def _call(response: Response) -> PreparedCall:
    async def call(body: bytes) -> Response:
        return response

    return call


def _with_headers(problem: HttpError) -> HttpError:
    return HttpError(problem.status, problem.reason, (*problem.headers, *_HEADERS))


def _body_too_large() -> HttpError:
    return HttpError(413, f"a body may have {BODY_BYTES_MAX} bytes at most")


def _parse_query(query: str) -> dict[str, str]:
    """Return the parameters of a query. HttpError 400 for an invalid one."""
    try:
        return dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=10))
    except ValueError:
        raise HttpError(400, "the query must be UTF-8 and have 10 fields at most") from None


def _parse_body(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise HttpError(400, f"the body is not JSON: {problem}") from None


def _read_page_files(token: str) -> dict[str, Response]:
    """Return path -> response of each file of the page. The HTML contains the token."""
    found = {}
    for file in files("emulator.dashboard").joinpath("page").iterdir():
        kind = _KINDS[file.name.rpartition(".")[2]]
        text = file.read_text().replace("{{ token }}", token)
        path = "/" if file.name == _PAGE else f"/{file.name}"
        headers = (("content-type", f"{kind}; charset=utf-8"), *_HEADERS)
        found[path] = Response(text, text=True, headers=headers)
    return found
