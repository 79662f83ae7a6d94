"""The region's HTTP port: health, lookup and listings as Pulsar's admin API has them, and `/geoemu/v1`, which the
command line uses.

Routes are data: a method, a pattern of path segments (`{name}` matches one), and a function.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from emulator.broker.http import HttpConnection, HttpError, Request, Response
from emulator.broker.region import Region
from emulator.broker.replicator import Replicator
from emulator.broker.shaping import ShapedLink
from emulator.broker.subscription import Subscription
from emulator.broker.topic import Topic
from emulator.errors import ProtocolError, ServerError
from emulator.network import Listener

Route = tuple[str, tuple[str, ...], Callable[..., Awaitable[Response]]]

_STATUS_OF = {
    ServerError.TopicNotFound: 404,
    ServerError.InvalidTopicName: 412,
    ServerError.NotAllowedError: 405,
    ServerError.ServiceNotReady: 503,
}


class Admin:
    """Answers HTTP requests about one region."""

    def __init__(self, region: Region, links: dict[str, ShapedLink]) -> None:
        self.region = region
        self.links = links
        """By peer region; empty where somebody else shapes the links."""
        self._listener: Listener | None = None
        topic = ("admin", "v2", "persistent", "{tenant}", "{namespace}", "{topic}")
        self._routes: list[Route] = [
            ("GET", ("admin", "v2", "brokers", "health"), self._health),
            ("GET", ("admin", "v2", "brokers", "ready"), self._health),
            ("GET", ("admin", "v2", "clusters"), self._clusters),
            ("GET", ("admin", "v2", "tenants"), self._tenants),
            ("GET", ("admin", "v2", "namespaces", "{tenant}"), self._namespaces),
            ("GET", ("admin", "v2", "namespaces", "{tenant}", "{namespace}", "topics"), self._topics_of),
            (
                "GET",
                ("admin", "v2", "namespaces", "{tenant}", "{namespace}", "replication"),
                self._replication,
            ),
            ("GET", ("admin", "v2", "persistent", "{tenant}", "{namespace}"), self._topics_of),
            ("GET", (*topic, "partitions"), self._partitions),
            ("GET", (*topic, "stats"), self._stats),
            ("GET", (*topic, "internalStats"), self._internal_stats),
            ("GET", (*topic, "subscriptions"), self._subscriptions),
            (
                "GET",
                ("lookup", "v2", "topic", "{domain}", "{tenant}", "{namespace}", "{topic}"),
                self._lookup,
            ),
            ("GET", ("geoemu", "v1", "status"), self._status),
            ("GET", ("geoemu", "v1", "topics"), self._all_topics),
            ("PUT", ("geoemu", "v1", "links", "{source}", "{target}"), self._set_link),
        ]

    async def start(self) -> int:
        """Listen; the port. OSError when it cannot be had."""
        config = self.region.config
        self._listener = await self.region.environment.network.listen(
            lambda: HttpConnection(self.handle, self.region.spawn), config.bind_host, config.admin_port
        )
        return self._listener.port

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    @property
    def url(self) -> str:
        config = self.region.config
        port = config.advertised_admin_port or (self._listener.port if self._listener else config.admin_port)
        return f"http://{config.advertised_host}:{port}"

    async def handle(self, request: Request) -> Response:
        """Find the route and run it."""
        path_known = False
        for method, pattern, answer in self._routes:
            found = _match(pattern, request.path)
            if found is None:
                continue
            path_known = True
            if method == request.method:
                try:
                    return await answer(request, **found)
                except ProtocolError as problem:
                    raise HttpError(_STATUS_OF.get(problem.code, 500), str(problem)) from None
        if path_known:
            raise HttpError(405, f"{request.method} is not offered for /{'/'.join(request.path)}")
        raise HttpError(404, f"/{'/'.join(request.path)} is not offered by this region")

    # Pulsar's.

    async def _health(self, request: Request) -> Response:
        return Response("ok", text=True)

    async def _clusters(self, request: Request) -> Response:
        return Response(sorted([self.region.config.region, *self.region.peers]))

    async def _tenants(self, request: Request) -> Response:
        return Response(sorted(self.region.config.tenants))

    async def _namespaces(self, request: Request, tenant: str) -> Response:
        names = sorted(name for name in self.region.namespaces if name.startswith(f"{tenant}/"))
        if not names and tenant not in self.region.config.tenants:
            raise HttpError(404, f"tenant {tenant} does not exist")
        return Response(names)

    def _check_namespace(self, tenant: str, namespace: str) -> str:
        name = f"{tenant}/{namespace}"
        if name not in self.region.namespaces:
            raise HttpError(404, f"namespace {name} does not exist")
        return name

    async def _topics_of(self, request: Request, tenant: str, namespace: str) -> Response:
        return Response(self.region.topic_names(self._check_namespace(tenant, namespace)))

    async def _replication(self, request: Request, tenant: str, namespace: str) -> Response:
        return Response(list(self.region.namespaces[self._check_namespace(tenant, namespace)].regions))

    async def _partitions(self, request: Request, **name: str) -> Response:
        self.region.check_topic(_full_name(**name))
        return Response({"partitions": 0})

    async def _lookup(self, request: Request, domain: str, **name: str) -> Response:
        self.region.check_topic(_full_name(**name, domain=domain))
        url, http_url = self.region.service_url, self.url
        # Both sides come by the same port; who is inside calls us by the name that we have there.
        inside = self.region.config.internal_host.lower()
        if inside and request.host.lower().partition(":")[0] == inside:
            url, http_url = self.region.internal_url, f"http://{request.host}"
        return Response({"brokerUrl": url, "nativeUrl": url, "httpUrl": http_url})

    async def _topic(self, **name: str) -> Topic:
        return await self.region.topic(_full_name(**name), create=False)

    async def _subscriptions(self, request: Request, **name: str) -> Response:
        return Response(sorted((await self._topic(**name)).subscriptions))

    async def _stats(self, request: Request, **name: str) -> Response:
        topic = await self._topic(**name)
        return Response(
            {
                "storageSize": topic.log.size_bytes,
                "publishers": [
                    {"producerName": producer_name, "accessMode": "Shared"}
                    for producer_name, publisher in topic.producers.items()
                    if publisher.source_region is None
                ],
                "subscriptions": {n: _subscription_stats(s) for n, s in topic.subscriptions.items()},
                "replication": {n: _replicator_stats(r) for n, r in topic.replicators.items()},
                "deduplicationStatus": "Enabled" if topic.deduplicates else "Disabled",
            }
        )

    async def _internal_stats(self, request: Request, **name: str) -> Response:
        topic = await self._topic(**name)
        ledger_id = topic.log.ledger_id
        return Response(
            {
                "numberOfEntries": topic.log.next_entry_id - topic.log.first_entry_id,
                "totalSize": topic.log.size_bytes,
                "lastConfirmedEntry": str(topic.last_position),
                "state": "LedgerOpened",
                "ledgers": [
                    {
                        "ledgerId": ledger_id,
                        "entries": topic.log.next_entry_id - topic.log.first_entry_id,
                        "size": topic.log.size_bytes,
                        "offloaded": False,
                    }
                ],
                "cursors": {n: _cursor_stats(s, ledger_id) for n, s in topic.subscriptions.items()},
            }
        )

    # Ours.

    async def _status(self, request: Request) -> Response:
        """`expect`: comma-separated peers whose links must be established; absent: all."""
        region = self.region
        expect = request.query.get("expect")
        expected = set(region.peers) if expect is None else set(filter(None, expect.split(",")))
        waiting_for = region.waiting_for(expected)
        return Response(
            {
                "region": region.config.region,
                "cluster": region.config.cluster,
                "ready": not waiting_for,
                "waiting_for": waiting_for,
                "pid": os.getpid(),
                "service_url": region.service_url,
                "links": [link for name in sorted(self.links) for link in self._link_rows(name)],
            }
        )

    def _link_rows(self, peer: str) -> list[dict[str, Any]]:
        here, link = self.region.config.region, self.links[peer]
        return [
            {"from": here, "to": peer, "state": link.outbound.state, "latency_ms": link.outbound.latency_ms},
            {"from": peer, "to": here, "state": link.inbound.state, "latency_ms": link.inbound.latency_ms},
        ]

    async def _all_topics(self, request: Request) -> Response:
        """What a person or a scenario needs to see that everything has drained, and why it has not."""
        return Response([topic_row(topic) for _, topic in sorted(self.region.topics.items())])

    async def _set_link(self, request: Request, source: str, target: str) -> Response:
        here = self.region.config.region
        if here not in (source, target):
            raise HttpError(404, f"{source} -> {target} does not end in {here}")
        link = self.links.get(target if source == here else source)
        if link is None:
            raise HttpError(404, f"no link {source} -> {target}; peers are: {', '.join(sorted(self.links))}")
        link.set(outbound=source == here, **_link_changes(request.json()))
        return Response(status=204)


_LINK_FIELDS: dict[str, tuple[type, ...]] = {
    "state": (str,),
    "latency_ms": (int, float),
    "jitter_ms": (int, float),
    "bandwidth_bytes_per_second": (int, type(None)),
}


def _link_changes(body: Any) -> dict[str, Any]:
    """Check what a link is to be changed to."""
    if not isinstance(body, dict):
        raise HttpError(400, "body must be a JSON object")
    for name, value in body.items():
        if name not in _LINK_FIELDS:
            raise HttpError(400, f"{name!r} is none of {', '.join(_LINK_FIELDS)}")
        if not isinstance(value, _LINK_FIELDS[name]) or isinstance(value, bool):
            raise HttpError(400, f"{name}: {value!r} has the wrong type")
        if name == "state" and value not in ("up", "held", "cut"):
            raise HttpError(400, f"state: {value!r} is none of up, held, cut")
        if isinstance(value, (int, float)) and value < 0:
            raise HttpError(400, f"{name}: {value!r} must not be negative")
    return body


def _match(pattern: tuple[str, ...], path: tuple[str, ...]) -> dict[str, str] | None:
    if len(pattern) != len(path):
        return None
    found: dict[str, str] = {}
    for expected, actual in zip(pattern, path, strict=True):
        if expected.startswith("{"):
            found[expected[1:-1]] = actual
        elif expected != actual:
            return None
    return found


def _full_name(*, tenant: str, namespace: str, topic: str, domain: str = "persistent") -> str:
    return f"{domain}://{tenant}/{namespace}/{topic}"


def _subscription_stats(subscription: Subscription) -> dict[str, Any]:
    replicated, durable = subscription.cursor.replicated, subscription.durable
    return {
        "msgBacklog": subscription.backlog(),
        "type": subscription.dispatcher.type.name.title(),
        "unackedMessages": sum(state.unacked_messages for state in subscription.dispatcher.consumers),
        "consumers": [
            {
                "consumerName": state.name,
                "availablePermits": state.permits,
                "unackedMessages": state.unacked_messages,
                "address": consumer.connection.address,
                "clientVersion": consumer.connection.client_version,
            }
            for state, consumer in subscription.consumers.items()
        ],
        "replicated": replicated,
        "isReplicated": replicated,
        "durable": durable,
        "isDurable": durable,
    }


def _replicator_stats(replicator: Replicator) -> dict[str, Any]:
    return {
        "replicationBacklog": replicator.backlog,
        "connected": replicator.ready,
        "whyNot": replicator.why_not,
    }


def _cursor_stats(subscription: Subscription, ledger_id: int) -> dict[str, Any]:
    cursor = subscription.cursor
    ranges = [f"({ledger_id}:{first - 1}..{ledger_id}:{last}]" for first, last in cursor.acked_ranges]
    return {
        "markDeletePosition": f"{ledger_id}:{cursor.mark_delete}",
        "readPosition": f"{ledger_id}:{subscription.dispatcher.read_entry_id}",
        "individuallyDeletedMessages": f"[{','.join(ranges)}]",
        "active": bool(subscription.consumers),
    }


def topic_row(topic: Topic) -> dict[str, Any]:
    """One topic of `/geoemu/v1/topics`."""
    return {
        "topic": topic.full_name,
        "last_position": str(topic.last_position),
        "entries": topic.log.next_entry_id - topic.log.first_entry_id,
        "replication": {
            name: {"backlog": r.backlog, "connected": r.ready, "why_not": r.why_not}
            for name, r in topic.replicators.items()
        },
        "subscriptions": {
            name: {
                "backlog": s.backlog(),
                "mark_delete": f"{topic.log.ledger_id}:{s.cursor.mark_delete}",
                "consumers": len(s.consumers),
                "replicated": s.cursor.replicated,
                "why_not_replicated": topic.sync.why_not(s) if topic.sync is not None else "",
            }
            for name, s in topic.subscriptions.items()
        },
        "snapshots": topic.sync.summary() if topic.sync is not None else {},
    }
