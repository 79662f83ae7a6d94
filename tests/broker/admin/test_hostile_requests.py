"""Whatever an HTTP request contains, the region responds soon and with a reason, and other clients are served as
before."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.broker.admin.resources import TABLE
from tests.broker.admin.served import Served, reply_in, served

SETTINGS = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
METHODS = st.sampled_from(
    ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"]
)
NAMES = st.one_of(
    st.sampled_from(
        ["us", "public", "default", "orders", "eu", "..", ".", "%2e%2e", "%2F", "%00", "%ff", "%", ""]
    ),
    st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#"), max_size=8),
)
QUERIES = st.sampled_from(["", "?", "?excludePublishers=x", "?expect=%ff", "?expect=a,b", "?=&=&", "?%00=1"])
BODIES = st.one_of(
    st.none(),
    st.binary(max_size=30),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["state", "latency_ms", "jitter_ms", "x"]), inner, max_size=3),
        ),
        max_leaves=5,
    ).map(lambda value: json.dumps(value).encode()),
)


@pytest.fixture(scope="module")
def us() -> Iterator[Served]:
    with served() as region:
        yield region


@st.composite
def targets(draw: st.DrawFn) -> str:
    row = draw(st.sampled_from(TABLE.resources))
    segments = [draw(NAMES) if segment.startswith("{") else segment for segment in row.segments]
    return f"/{'/'.join(segments)}{draw(st.sampled_from(['', '/', '//']))}{draw(QUERIES)}"


@SETTINGS
@given(method=METHODS, target=targets(), body=BODIES)
def test_no_request_for_a_row_is_our_failure(
    us: Served, method: str, target: str, body: bytes | None
) -> None:
    reply = us.ask(method, target, body)
    assert reply.status < 500, (method, target, body, reply.body)
    if reply.status >= 400 and method != "HEAD":
        assert reply.json()["reason"]


@SETTINGS
@given(
    sent=st.binary(max_size=60),
    beginning=st.sampled_from([b"", b"GET /", b"PUT /geoemu/v1/links/us/eu HTTP/1.1\r\n"]),
)
def test_no_bytes_are_our_failure(us: Served, sent: bytes, beginning: bytes) -> None:
    received = us.raw(beginning + sent)
    if received:
        assert reply_in(received).status < 500
    assert us.ask("GET", "/admin/v2/brokers/health").body == b"ok"


@pytest.mark.parametrize("name", ["Host", "Origin", "Content-Type", "Authorization"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_header_that_authorizes_may_occur_once(us: Served, name: str, method: str) -> None:
    """A proxy in front of the region may use the other one of two headers."""
    head = f"{method} /admin/v2/namespaces/public/default/deduplication HTTP/1.1\r\nHost: localhost\r\n"
    twice = f"{name}: localhost\r\n" * 2
    reply = reply_in(us.raw(f"{head}{twice}Content-Length: 4\r\n\r\ntrue".encode()))
    assert reply.status == 400
    assert name.lower() in reply.json()["reason"].lower()


@pytest.mark.parametrize(
    "target",
    [
        "/admin/v2/namespaces/public%2Fdefault",
        "/admin/v2/namespaces/a%2Fb/c/deduplication",
        "/admin/v2/namespaces/public/default%2Fx/deduplication",
        "/admin/v2/persistent/public%2Fdefault/a/b/stats",
    ],
)
def test_a_slash_inside_of_a_tenant_or_namespace_is_refused(us: Served, target: str) -> None:
    """Joined, `public%2Fdefault/a/b` would be the topic `a/b` of public/default."""
    reply = us.ask("GET", target)
    assert reply.status == 412
    assert "is not a valid" in reply.json()["reason"]


@pytest.mark.parametrize("number", ["¹", "٣", "9" * 5_000, "-1", ""])
def test_a_quoted_number_of_partitions_that_is_none_is_refused(us: Served, number: str) -> None:
    reply = us.ask("PUT", "/admin/v2/persistent/public/default/parts/partitions", number)
    assert 400 <= reply.status < 500, reply
