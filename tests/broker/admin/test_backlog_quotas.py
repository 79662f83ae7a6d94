"""Retention, TTL and quotas, in the forms that Pulsar's tools send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.admin.served import Served, served

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/orders"


@pytest.fixture
def us() -> Iterator[Served]:
    with served() as region:
        yield region


@pytest.mark.parametrize("place", [NAMESPACE, TOPIC])
def test_quotas_are_set_one_kind_at_a_time_and_read_together(us: Served, place: str) -> None:
    hold = b'{"limit": "10240", "policy": "producer_request_hold"}'
    evict = b'{"limitTime": 5, "limitSize": -1, "policy": "consumer_backlog_eviction"}'
    assert us.ask("POST", f"{place}/backlogQuota", hold).status == 204
    assert us.ask("POST", f"{place}/backlogQuota?backlogQuotaType=message_age", evict).status == 204
    assert us.get(f"{place}/backlogQuotaMap") == {
        "destination_storage": {
            "limit": 10240,
            "limitSize": 10240,
            "limitTime": -1,
            "policy": "producer_request_hold",
        },
        "message_age": {
            "limit": -1,
            "limitSize": -1,
            "limitTime": 5,
            "policy": "consumer_backlog_eviction",
        },
    }
    assert us.ask("DELETE", f"{place}/backlogQuota?backlogQuotaType=message_age").status == 204
    assert list(us.get(f"{place}/backlogQuotaMap")) == ["destination_storage"]


def test_a_topics_ttl_comes_behind_the_question_mark(us: Served) -> None:
    assert us.ask("POST", f"{TOPIC}/messageTTL?messageTTL=60").status == 204
    assert us.get(f"{TOPIC}/messageTTL") == 60
    assert us.ask("DELETE", f"{TOPIC}/messageTTL?messageTTL=60").status == 204
    assert us.ask("GET", f"{TOPIC}/messageTTL").status == 204
    assert us.ask("POST", f"{TOPIC}/messageTTL?messageTTL=soon").status == 400
    assert us.ask("POST", f"{TOPIC}/messageTTL?messageTTL=-5").status == 412


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (f"{NAMESPACE}/retention", b'{"retentionTimeInMinutes": 5, "retentionSizeInMB": 0}', 412),
        (f"{NAMESPACE}/retention", b'{"retentionTimeInMinutes": 5}', 400),
        (f"{NAMESPACE}/messageTTL", b"-1", 412),
        (f"{NAMESPACE}/backlogQuota", b'{"limit": 5, "policy": "shrug"}', 400),
        (f"{NAMESPACE}/backlogQuota?backlogQuotaType=weight", b'{"policy": "producer_exception"}', 400),
        (f"{NAMESPACE}/backlogQuota", b'{"limitSize": -7, "policy": "producer_exception"}', 412),
    ],
)
def test_what_cannot_be_is_refused(us: Served, path: str, body: bytes, status: int) -> None:
    reply = us.ask("POST", path, body)
    assert (reply.status, bool(reply.json()["reason"])) == (status, True)
