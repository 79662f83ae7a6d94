"""Ports are free, all different, and stay reserved while their region is down."""

from __future__ import annotations

import socket

import pytest

from emulator.errors import Refused
from emulator.runtimes import listening
from emulator.runtimes.listening import WantedPort, choose_ports


def wanted(port: int, host: str = "127.0.0.1") -> WantedPort:
    return WantedPort("us-east", "service_port", host, port)


def test_free_ports_are_all_different_and_out_of_reach_of_outgoing_connections() -> None:
    chosen = choose_ports([wanted(0)] * 50)
    assert len(set(chosen)) == 50
    assert all(listening.LOWEST_PORT <= port < listening._lowest_outgoing_port() for port in chosen)


def test_a_fixed_port_is_kept() -> None:
    (free,) = choose_ports([wanted(0)])
    assert choose_ports([wanted(0), wanted(free)])[1] == free


def test_where_outgoing_connections_may_have_any_port_the_system_picks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_lowest_outgoing_port", lambda: 1024)
    assert choose_ports([wanted(0)])[0] > 0


def test_a_port_in_use_is_named_with_the_key_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Refused) as refusal:
            choose_ports([wanted(port)])
    assert str(refusal.value) == (
        f"port {port} is in use: end the program that listens there, or change `service_port` of region us-east "
        f"(0 picks a free port)"
    )


def test_an_address_of_another_machine_is_named_with_the_key_to_change() -> None:
    with pytest.raises(
        Refused,
        match=r"192\.0\.2\.1:6650 .*: change the address of region us-east \(--listen, or `listen` or `host` of the "
        r"region\) or `service_port` of region us-east",
    ):
        choose_ports([wanted(6650, host="192.0.2.1")])
