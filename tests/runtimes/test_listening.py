"""A run listens on loopback unless another address is named, and beyond loopback only with permission."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

import geoemu
from emulator.config.loading import load_topology
from emulator.config.region import LogConfig, RegionConfig
from emulator.config.security import AuthenticationConfig, SecurityConfig, TlsConfig
from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.net.addresses import in_url
from emulator.recording.context import region_at_url
from emulator.run.directory import RunDirectory
from emulator.runtimes.admin_client import call_url
from emulator.runtimes.compose.run_files import render
from emulator.runtimes.dashboards import DASHBOARD_SERVICES
from emulator.runtimes.listening import listening_on, with_addresses
from emulator.runtimes.process import ProcessRuntime
from tests.broker.test_internal_port import looked_up

from .fixtures import REGIONS, small_topology, with_regions, write_topology

Make = Callable[..., object]
OTHERS = ["0.0.0.0", "::"]


def config_of(folder: Path, region: str = "us-east") -> RegionConfig:
    return RegionConfig.load(folder / "run" / "regions" / region / "region.json")


# --- what is allowed ------------------------------------------------------------------------------------


def test_nothing_but_loopback_is_listened_on_unless_another_address_is_named(tmp_path: Path) -> None:
    ProcessRuntime.create(small_topology(tmp_path), tmp_path / "run")
    assert {config_of(tmp_path, region).bind_host for region in REGIONS} == {"127.0.0.1"}


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.8.7", "localhost"])
def test_a_loopback_address_needs_no_permission(
    tmp_path: Path, make: Make, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(listening_on(small_topology(tmp_path), address), tmp_path / "run")
    assert caplog.messages == []


@pytest.mark.parametrize("address", OTHERS)
def test_an_address_that_other_machines_reach_is_refused(tmp_path: Path, make: Make, address: str) -> None:
    topology = listening_on(with_regions(small_topology(tmp_path), host="a.example"), address)
    with pytest.raises(Refused) as refusal:
        make(topology, tmp_path / "run")
    assert str(refusal.value) == (
        f"us-east, us-west and eu-central would listen on {address} (every address of this machine), which other "
        f"machines can reach, and regions do not authenticate clients: add --insecure (insecure=True in a program) to "
        f"allow that, or name a loopback address (--listen, or `listen` or `host` of the region)"
    )
    assert not (tmp_path / "run" / "run.json").exists(), "nothing was created"


@pytest.mark.parametrize("address", OTHERS)
def test_with_permission_one_line_warns(
    tmp_path: Path, make: Make, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    topology = listening_on(with_regions(small_topology(tmp_path), host="a.example"), address)
    with caplog.at_level(logging.WARNING):
        make(topology, tmp_path / "run", insecure=True)
    (line,) = caplog.messages
    assert line == (
        f"warning: us-east, us-west and eu-central listen on {address} (every address of this machine): any machine "
        f"that reaches it can publish, consume and change everything by the admin API, without authentication"
    )


def test_the_warning_names_the_kafkas_that_are_published_with_their_regions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_topology(tmp_path)
    (tmp_path / "clusters" / "europe.yaml").write_text("regions: {eu-central: {log: {backend: kafka}}}")
    topology = with_regions(listening_on(load_topology(path), "0.0.0.0"), host="a.example")
    render(topology, tmp_path / "run", insecure=True)
    (line,) = caplog.messages
    assert line.endswith("; it can also read and change the logs in the Kafkas of eu-central")


def test_a_topology_that_names_another_address_needs_the_same_permission(tmp_path: Path) -> None:
    path = write_topology(tmp_path)
    (tmp_path / "clusters" / "europe.yaml").write_text("regions: {eu-central: {listen: 0.0.0.0}}")
    with pytest.raises(geoemu.RuntimeFailure, match=r"eu-central would listen on 0\.0\.0\.0"):
        geoemu.up(path, run_dir=tmp_path / "run")


def test_the_library_refuses_what_the_command_line_refuses(tmp_path: Path) -> None:
    path = write_topology(tmp_path)
    with pytest.raises(geoemu.RuntimeFailure, match="add --insecure"):
        geoemu.up(path, run_dir=tmp_path / "run", listen="0.0.0.0")
    with pytest.raises(geoemu.RuntimeFailure, match=r"listen='\[::1\]': must be an IPv4 address"):
        geoemu.up(path, run_dir=tmp_path / "run", listen="[::1]")


def test_an_address_of_another_machine_and_a_name_of_none_are_refused(tmp_path: Path, make: Make) -> None:
    topology = small_topology(tmp_path)
    with pytest.raises(
        Refused, match=r"cannot listen on 192\.0\.2\.1:0 .*change the address of region us-east"
    ):
        make(listening_on(topology, "192.0.2.1"), tmp_path / "run", insecure=True)
    with pytest.raises(
        Refused, match=r"region us-east cannot listen on nowhere\.invalid: the name has no address"
    ):
        make(listening_on(topology, "nowhere.invalid"), tmp_path / "run", insecure=True)


def test_a_name_is_looked_up_once_and_clients_receive_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checked address is used for listening, whatever the name resolves to later."""
    lookups: list[object] = []
    system = socket.getaddrinfo

    def changing(host: Any, *rest: Any, **more: Any) -> Any:
        if host != "here.example":
            return system(host, *rest, **more)
        lookups.append(host)
        return system("127.0.0.1" if len(lookups) <= len(REGIONS) else "0.0.0.0", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    ProcessRuntime.create(listening_on(small_topology(tmp_path), "here.example"), tmp_path / "run")
    config = config_of(tmp_path)
    assert (config.bind_host, config.advertised_host) == ("127.0.0.1", "here.example")
    assert {peer.host for peer in config.peers} == {"127.0.0.1"}


def test_a_name_that_means_another_address_than_loopback_needs_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("192.0.2.7", 0))])
    with pytest.raises(Refused, match=r"would listen on 192\.0\.2\.7, which other machines can reach"):
        ProcessRuntime.create(listening_on(small_topology(tmp_path), "localhost"), tmp_path / "run")


# --- addresses that clients get -------------------------------------------------------------------------


def test_a_region_is_shown_with_its_host_name_and_requested_at_its_address(tmp_path: Path) -> None:
    """Clients built on the C++ library refuse `pulsar://[::1]:6650` and need a name."""
    topology = with_regions(listening_on(small_topology(tmp_path), "::1"), host="six.example")
    ProcessRuntime.create(topology, tmp_path / "run")
    for region in RunDirectory(tmp_path / "run").read().regions.values():
        assert urlsplit(region.service_url).hostname == "six.example"
        assert urlsplit(region.admin_url).hostname == "::1"


def test_a_container_on_every_address_needs_a_name_for_clients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology = listening_on(small_topology(tmp_path), "0.0.0.0")
    with pytest.raises(Refused, match=r"lookups cannot return the address of us-east.*`host` of the region"):
        render(topology, tmp_path / "run", insecure=True)
    assert caplog.messages == [], "a rejected address needs no warning"
    render(with_regions(topology, host="a.example"), tmp_path / "run", insecure=True)
    config = config_of(tmp_path)
    assert (config.advertised_host, config.bind_host) == ("a.example", "0.0.0.0")


def test_all_published_ports_are_of_loopback_by_default(tmp_path: Path) -> None:
    topology = small_topology(tmp_path)
    render(topology, tmp_path / "run", dashboards=True)
    services = yaml.safe_load((tmp_path / "run" / "compose.yaml").read_text())["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == 2 * len(REGIONS) + len(DASHBOARD_SERVICES)
    assert all(port.startswith("127.0.0.1:") for port in ports), ports


async def _looked_up(host: str, port: int, admin_port: int) -> set[str]:
    topic, url = "persistent/public/default/orders", f"http://{in_url(host)}:{admin_port}"
    lookup = (await call_url(url, "GET", f"/lookup/v2/topic/{topic}")).json()
    status = (await call_url(url, "GET", "/geoemu/v1/status")).json()
    cluster = (await call_url(url, "GET", "/admin/v2/clusters/us-east")).json()
    urls = [
        lookup["brokerUrl"],
        status["service_url"],
        cluster["brokerServiceUrl"],
        await looked_up(port, host),
    ]
    other = (await call_url(url, "GET", "/admin/v2/clusters/us-west")).json()
    assert urlsplit(other["brokerServiceUrl"]).hostname == host
    return set(urls)


@pytest.mark.real
@pytest.mark.parametrize(
    ("address", "reached_at"), [("0.0.0.0", ["127.0.0.1", "127.0.0.2"]), ("::1", ["::1"]), ("::", ["::1"])]
)
def test_every_client_receives_the_address_that_it_connected_to(
    tmp_path: Path, address: str, reached_at: list[str]
) -> None:
    run = ProcessRuntime.create(
        listening_on(small_topology(tmp_path), address), tmp_path / "run", insecure=True
    )

    async def scenario() -> None:
        await run.up()
        region, *_ = (await run.status()).regions
        port, admin_port = urlsplit(region.service_url).port, urlsplit(region.admin_url).port
        assert port is not None
        assert admin_port is not None
        for host in reached_at:
            url = f"pulsar://[{host}]:{port}" if ":" in host else f"pulsar://{host}:{port}"
            assert await _looked_up(host, port, admin_port) == {url}
            assert region_at_url(url, RunDirectory(tmp_path / "run").read().regions) == "us-east"
        await run.restart("us-east")
        await run.down()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    topology = json.loads((tmp_path / "run" / "topology.json").read_text())
    assert topology["clusters"][0]["regions"][0]["listen"] == address


# --- secured regions ------------------------------------------------------------------------------------

AUTHENTICATION = AuthenticationConfig(anonymous_role="guest")
TLS = TlsConfig("c.pem", "k.pem", "a.pem", plain_ports=False)


def exposed(folder: Path, security: SecurityConfig) -> Topology:
    topology = listening_on(with_regions(small_topology(folder), host="a.example"), "0.0.0.0")
    return dataclasses.replace(topology, security=security)


def test_regions_with_authentication_and_tls_may_listen_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secured = exposed(tmp_path, SecurityConfig(TLS, AUTHENTICATION))
    assert {one.listen for one in with_addresses(secured, insecure=False).regions} == {"0.0.0.0"}
    assert caplog.messages == []


def test_open_ports_without_tls_are_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tls = dataclasses.replace(TLS, plain_ports=True)
    with_addresses(exposed(tmp_path, SecurityConfig(tls, AUTHENTICATION)), insecure=False)
    (line,) = caplog.messages
    assert "security.tls.plain_ports: false closes these ports" in line


@pytest.mark.parametrize(
    ("security", "weakness"),
    [
        (SecurityConfig(None, AUTHENTICATION), "regions have no TLS"),
        (SecurityConfig(TLS), "regions do not authenticate clients"),
    ],
    ids=["without TLS", "without authentication"],
)
def test_one_of_both_is_not_enough(tmp_path: Path, security: SecurityConfig, weakness: str) -> None:
    with pytest.raises(Refused, match=f"{weakness}.*add --insecure"):
        with_addresses(exposed(tmp_path, security), insecure=False)
    with_addresses(exposed(tmp_path, security), insecure=True)


def test_kafkas_that_are_published_need_permission_still(tmp_path: Path) -> None:
    secured = exposed(tmp_path, SecurityConfig(TLS, AUTHENTICATION))
    with_kafka = with_regions(secured, log=LogConfig("kafka"))
    with_addresses(with_kafka, insecure=False)
    with pytest.raises(Refused, match="the Kafkas of us-east, us-west and eu-central do not authenticate"):
        with_addresses(with_kafka, insecure=False, in_containers=True)
