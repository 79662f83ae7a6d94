"""Valid listen addresses, which of them stay on the machine, and how the machine itself reaches them."""

from __future__ import annotations

import pytest

from emulator.net.addresses import in_url, is_host, is_loopback, is_wildcard, nearby


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1", "::1", "::", "fe80::1", "localhost", "a", "a-1.example", "example.", "x_y", "1.example"],
)
def test_addresses_and_names_are_hosts(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "a..b",
        "-a",
        "a-",
        "a b",
        "a\n",
        "a\0b",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "127.1",
        "0",
        "0x7f.1",
        "127.0.0.1:6650",
        "[::1]",
        "::1]",
        ":::",
        "::ffff:1.2.3",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::ffff:0.0.0.0",
        "fe80::1%eth0",
        "http://a",
        "a/b",
        "*",
        "é",
        "a" * 64,
        ".".join(["a" * 60] * 5),
    ],
)
def test_nothing_else_is_a_host(text: str) -> None:
    assert not is_host(text)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.10", "::1", "0:0:0:0:0:0:0:1", "localhost", "LocalHost"]
)
def test_loopback_is_reached_by_the_machine_itself_only(host: str) -> None:
    assert is_loopback(host)
    assert nearby(host) == host


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "128.0.0.1", "10.0.0.1", "::2", "::ffff:10.0.0.1", "localhost.example", "", "127.1"],
)
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("0::0", "::1")])
def test_every_address_of_the_machine_includes_its_loopback(host: str, reached: str) -> None:
    assert is_wildcard(host)
    assert nearby(host) == reached


def test_an_ipv6_address_has_brackets_in_a_url() -> None:
    assert [in_url(host) for host in ("::1", "127.0.0.1", "a.example")] == ["[::1]", "127.0.0.1", "a.example"]
