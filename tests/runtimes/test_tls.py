"""Runs whose topology has `security.tls`: ports, addresses, changed certificates, and a fail-over with a verdict."""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest
import yaml

import geoemu as geoemu_library
from emulator.client import Client
from emulator.config.loading import load_topology
from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.net.tls import Certificates
from emulator.recording.context import region_at_url
from emulator.run.directory import RunDirectory
from emulator.runtimes.admin_client import NoHttpResponse, call, call_url
from emulator.runtimes.compose.run_files import render
from emulator.runtimes.contract import RegionStatus, RunStatus
from emulator.runtimes.process import ProcessRuntime
from tests.cli.test_cli import geoemu
from tests.net import authority

from .fixtures import REGIONS, wait_until, write_topology

TOPIC = "persistent://public/default/orders"


def secured_topology(folder: Path, files: Certificates | None = None, **more: object) -> Path:
    """Write a topology with TLS whose own clients have a certificate; return its path."""
    used, own = files or authority.server_files(), authority.client_files()
    tls = {**dataclasses.asdict(used), **more}
    client = {"certificate": own.certificate, "key": own.key}
    return write_topology(folder, more=yaml.safe_dump({"security": {"tls": tls, "client": client}}))


def secured(folder: Path, files: Certificates | None = None, **more: object) -> Topology:
    return load_topology(secured_topology(folder, files, **more))


def certificate_at(url: str) -> str:
    """Return the certificate that a port presents, as PEM."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    return ssl.get_server_certificate((address.hostname, address.port))


def is_open(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as attempt:
        return attempt.connect_ex((address.hostname, address.port)) == 0


async def region_of(run: ProcessRuntime, name: str) -> RegionStatus:
    return next(region for region in (await run.status()).regions if region.name == name)


async def publish_and_receive(status: RunStatus, payload: bytes) -> None:
    """Publish in the first region and receive in the last one."""
    first, last = status.regions[0], status.regions[-1]
    async with (
        Client(first.service_url, tls=first.tls) as here,
        Client(last.service_url, tls=last.tls) as there,
    ):
        consumer = await there.subscribe(TOPIC, "s")
        producer = await here.producer(TOPIC)
        await producer.send(payload)
        message = await consumer.receive()
        while message.payload != payload:  # of an earlier call, whose acknowledgement a kill may have lost
            await consumer.acknowledge(message)
            message = await consumer.receive()
        await consumer.acknowledge(message)


@pytest.mark.real
async def test_a_run_with_tls_names_its_ports_and_its_own_programs_use_them(tmp_path: Path) -> None:
    run = ProcessRuntime.create(secured(tmp_path), tmp_path / "run")
    await run.up()
    status = await run.status()
    for region in status.regions:
        assert region.service_url.startswith("pulsar+ssl://127.0.0.1:")
        assert region.admin_url.startswith("https://127.0.0.1:")
        assert region.plain_service_url.startswith("pulsar://127.0.0.1:")
        records = RunDirectory(tmp_path / "run").read().regions
        assert region_at_url(region.service_url, records) == region.name
        assert region_at_url(region.plain_service_url, records) == region.name
    us = status.regions[0]
    lookup = (await call(us, "GET", "/lookup/v2/topic/persistent/public/default/orders")).json()
    cluster = (await call(us, "GET", "/admin/v2/clusters/us-east")).json()
    other = (await call(us, "GET", "/admin/v2/clusters/us-west")).json()
    assert (lookup["brokerUrl"], lookup["brokerUrlTls"]) == (us.plain_service_url, us.service_url)
    assert (lookup["httpUrl"], lookup["httpUrlTls"]) == (us.plain_admin_url, us.admin_url)
    assert (cluster["serviceUrl"], cluster["serviceUrlTls"]) == (us.plain_admin_url, us.admin_url)
    assert (cluster["brokerServiceUrl"], cluster["brokerServiceUrlTls"]) == (
        us.plain_service_url,
        us.service_url,
    )
    assert other["brokerServiceUrlTls"] == status.regions[1].service_url
    await publish_and_receive(status, b"over TLS")
    async with Client(us.plain_service_url) as plain:
        await (await plain.producer(TOPIC)).send(b"without")
    ready = json.loads((tmp_path / "run" / "regions" / "us-east" / "ready.json").read_text())
    assert f":{ready['service_port_tls']}" in us.service_url
    assert f":{ready['admin_port_tls']}" in us.admin_url
    await run.down()


@pytest.mark.real
async def test_closed_plain_ports_and_required_certificates_restrict_only_others(tmp_path: Path) -> None:
    topology = secured(tmp_path, plain_ports=False, client_certificates="required")
    run = ProcessRuntime.create(topology, tmp_path / "run")
    await run.up()
    status = await run.status()
    us = status.regions[0]
    assert (us.plain_service_url, us.plain_admin_url) == ("", "")
    config = json.loads((tmp_path / "run" / "regions" / "us-east" / "region.json").read_text())
    assert config["security"]["client"] is None
    listening = RunDirectory(tmp_path / "run").read().regions.values()
    assert all(one.service_port == one.admin_port == 0 for one in listening)
    with pytest.raises(NoHttpResponse):
        await call(dataclasses.replace(us, tls=authority.trusting()), "GET", "/geoemu/v1/status")
    with pytest.raises(NoHttpResponse):
        await call_url(us.admin_url.replace("https", "http"), "GET", "/geoemu/v1/status")
    await publish_and_receive(status, b"with a certificate")
    await run.kill("us-east")
    await run.start("us-east")
    await publish_and_receive(await run.status(), b"after a kill")
    await run.down()


@pytest.mark.real
async def test_a_certificate_of_the_advertised_name_suffices(tmp_path: Path) -> None:
    topology = secured_topology(tmp_path, authority.files_for("localhost"), plain_ports=False)
    for cluster in ("americas", "europe"):
        file = tmp_path / "clusters" / f"{cluster}.yaml"
        file.write_text(file.read_text().replace("service_port: 0", "host: localhost, service_port: 0"))
    run = ProcessRuntime.create(load_topology(topology), tmp_path / "run")
    await run.up()
    status = await run.status()
    assert all(region.admin_url.startswith("https://localhost:") for region in status.regions)
    await publish_and_receive(status, b"by name")
    await run.down()


@pytest.mark.real
def test_the_library_gives_the_python_client_what_it_needs_and_recorded_knows_its_region(
    tmp_path: Path,
) -> None:
    path = secured_topology(tmp_path, plain_ports=False, client_certificates="required")
    with geoemu_library.up(path, run_dir=tmp_path / "run") as geo:
        namespace = geo.create_namespace()
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, str(tmp_path / "client.log"))
        options = geo.client_options("us-east")
        client = geo.recorded(pulsar.Client(geo.url("us-east"), logger=quiet, **options), actor="app")
        client.create_producer(f"persistent://{namespace}/orders").send(b"recorded")
        client.close()
        geo.await_replicated(f"persistent://{namespace}/orders")
        plain = geo.tap().url("us-west")
        assert plain.startswith("pulsar://127.0.0.1:")
        tapped = pulsar.Client(plain, logger=quiet)
        consumer = tapped.subscribe(
            f"persistent://{namespace}/orders", "s", initial_position=pulsar.InitialPosition.Earliest
        )
        message = consumer.receive(timeout_millis=20_000)
        assert message.data() == b"recorded"
        consumer.acknowledge(message)
        tapped.close()
    histories = tmp_path / "run" / "history"
    assert '"region":"us-east"' in (histories / "app.jsonl").read_text().replace(" ", "")
    assert '"region":"us-west"' in (histories / "wire.jsonl").read_text().replace(" ", "")


@pytest.mark.real
async def test_changed_files_are_used_without_a_restart_also_by_links(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    folder.mkdir()
    files = Certificates(*(str(folder / name) for name in ("ca.pem", "server.pem", "server.key")))

    def install(name: str) -> None:
        for kind in ("key", "pem"):
            shutil.copy(authority.folder(name) / f"server.{kind}", folder / f"server.{kind}")

    bundle = b"".join((authority.folder(name) / "ca.pem").read_bytes() for name in ("one", "other"))
    (folder / "ca.pem").write_bytes(bundle)
    install("one")
    run = ProcessRuntime.create(secured(tmp_path, files, client_certificates="none"), tmp_path / "run")
    await run.up()
    us = await region_of(run, "us-east")
    before = certificate_at(us.service_url)
    install("other")
    new = (authority.folder("other") / "server.pem").read_text()
    assert certificate_at(us.service_url) == certificate_at(us.admin_url) == new != before
    await run.kill("us-west")
    await run.start("us-west")  # returns when all links are connected, with the new certificate
    await publish_and_receive(await run.status(), b"with the new one")
    await run.down()


@pytest.mark.real
async def test_a_region_whose_files_are_gone_does_not_start_and_says_why(tmp_path: Path) -> None:
    key = tmp_path / "server.key"
    shutil.copy(authority.server_files().key, key)
    topology = secured(tmp_path, dataclasses.replace(authority.server_files(), key=str(key)))
    key.unlink()
    run = ProcessRuntime.create(topology, tmp_path / "run")
    with pytest.raises(Exception, match=rf"cannot listen on .*key {key}: No such file"):
        await run.up()


@pytest.mark.parametrize("plain_ports", [True, False])
def test_containers_get_the_files_as_secrets(tmp_path: Path, plain_ports: bool) -> None:
    topology = secured(tmp_path, plain_ports=plain_ports)
    if not plain_ports:
        with pytest.raises(Refused, match=r"dashboards read the ports without TLS"):
            render(topology, tmp_path / "run", dashboards=True)
    render(topology, tmp_path / "run")
    compose = yaml.safe_load((tmp_path / "run" / "compose.yaml").read_text())
    names = ["tls-certificate", "tls-key", "tls-authority"]
    assert list(compose["secrets"]) == names
    for name in names:
        file = tmp_path / "run" / compose["secrets"][name]["file"]
        assert file.stat().st_mode & 0o077 == 0
    key = Path(authority.server_files().key).read_text()
    assert (tmp_path / "run" / "secrets" / "tls-key").read_text() == key
    for name in REGIONS:
        service = compose["services"][name]
        assert service["secrets"] == names
        inside = [port.rpartition(":")[2] for port in service["ports"]]
        assert inside == (["6652", "8080"] if plain_ports else []) + ["6653", "8443"]
        config = json.loads((tmp_path / "run" / "regions" / name / "region.json").read_text())
        assert config["security"]["tls"]["key"] == "/run/secrets/tls-key"
        assert {(peer["port"], peer["port_tls"]) for peer in config["peers"]} == {
            (6650 if plain_ports else 0, 6651)
        }
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != "tls-key"]
    assert not any(key in path.read_text(errors="replace") for path in written)


@pytest.mark.real
@pytest.mark.long
def test_a_fail_over_with_tls_has_a_valid_verdict(tmp_path: Path) -> None:
    path = secured_topology(tmp_path, plain_ports=False, client_certificates="required")
    done = geoemu(
        "run", "region-failover", "-f", str(path), "--run-dir", str(tmp_path / "run"), folder=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    status = RunDirectory(tmp_path / "run").read()
    assert all(region.service_port == 0 for region in status.regions.values())
    wait_until(lambda: (tmp_path / "run" / "report").is_dir(), "a report")
