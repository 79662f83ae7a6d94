"""Which HTTP requests may change something."""

from __future__ import annotations

import pytest

from emulator.broker.admin.server import admin_guard
from emulator.config.region import RegionConfig
from emulator.net.host_guard import HostGuard, host_in
from emulator.net.http_server import HttpError, RequestHead

GUARD = admin_guard(
    RegionConfig(
        "us",
        "test",
        bind_host="0.0.0.0",
        advertised_host="pulsar.example",
        internal_host="us-east",
        admin_hosts=("192.168.7.20",),
    )
)


def refusal(method: str, host: str, origin: str | None = None, guard: HostGuard = GUARD) -> int:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    try:
        guard.check(RequestHead(method, "/", headers))
    except HttpError as problem:
        return problem.status
    return 0


@pytest.mark.parametrize(
    "host",
    [
        "pulsar.example",
        "PULSAR.example:8080",
        "pulsar.example.:80",
        "us-east:8080",
        "192.168.7.20:1",
        "localhost:8080",
        "127.0.0.1",
        "127.1.2.3:9",
        "[::1]:8080",
    ],
)
def test_a_name_of_the_region_may_be_called(host: str) -> None:
    assert refusal("PUT", host) == 0


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "0.0.0.0",
        "127.evil",
        "localhost.evil",
        "[::2]",
        "127.0.0.1234",
    ],
)
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "BREW"])
def test_any_other_name_is_misdirected(host: str, method: str) -> None:
    assert refusal(method, host) == 421


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://pulsar.example", "http://[::1]:80"])
def test_a_page_of_the_region_itself_may_change_something(origin: str) -> None:
    assert refusal("POST", "localhost", origin) == 0


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "https://pulsar.example.evil",
        "file://",
        "http://localhost:80, http://evil.example",
        "http://localhost:80 http://evil.example",
        "http://localhost:80@evil.example",
        "http://localhost/evil",
    ],
)
def test_a_page_of_another_site_may_not(origin: str) -> None:
    assert refusal("POST", "localhost", origin) == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reading_is_not_guarded(method: str) -> None:
    assert refusal(method, "evil.example", "http://evil.example") == 0


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:80", None, 0),
        ("localhost:80", "http://localhost:80", 0),
        ("evil.example", None, 421),
        ("localhost", "http://evil.example", 403),
    ],
)
def test_a_server_may_guard_reading_too(host: str, origin: str | None, status: int) -> None:
    assert refusal("GET", host, origin, HostGuard("the dashboard", guards_reads=True)) == status


def test_the_response_names_the_option_to_set() -> None:
    with pytest.raises(HttpError, match=r"'evil' is not a name of region us.*192\.168\.7\.20.*admin_hosts"):
        GUARD.check(RequestHead("PUT", "/", {"host": "evil"}))


@pytest.mark.parametrize(
    ("authority", "host"), [("[::1", ""), ("a:b:c", ""), ("a:1,b", ""), (" A ", "a"), ("a:", "a"), ("[]", "")]
)
def test_odd_authorities_have_a_host_or_none(authority: str, host: str) -> None:
    assert host_in(authority) == host


@pytest.mark.parametrize(
    ("local_address", "host"), [("10.1.2.3", "10.1.2.3:8080"), ("fd00::7", "[FD00::7]:8080")]
)
def test_the_address_that_the_client_connected_to_may_be_called(local_address: str, host: str) -> None:
    """A region that listens on every address has no list of its names."""
    everywhere = admin_guard(RegionConfig("us", "test", bind_host="0.0.0.0", advertised_host=""))
    everywhere.check(
        RequestHead("PUT", "/", {"host": host, "origin": f"http://{host}"}, local_address=local_address)
    )
    for other in ("10.1.2.4", "evil.example", "0.0.0.0", "", "[::]"):
        with pytest.raises(
            HttpError,
            match=f"is not a name of region us, which accepts changes addressed to {local_address}, localhost;",
        ):
            everywhere.check(RequestHead("PUT", "/", {"host": other}, local_address=local_address))
    with pytest.raises(HttpError, match="may not change anything"):
        everywhere.check(
            RequestHead(
                "PUT", "/", {"host": host, "origin": "http://10.1.2.4:8080"}, local_address=local_address
            )
        )
