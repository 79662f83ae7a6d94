"""Problems of `security:` in a topology: each is reported at the key that names the file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from emulator.config.certificates import Issued, Validity, self_signed
from emulator.config.loading import load_topology
from emulator.errors import ConfigurationError
from emulator.net.tls import Certificates
from tests.config.topology_files import write_topology
from tests.net import authority

GOOD = authority.server_files


def problems(folder: Path, tls: str, client: str = "", **clusters: str) -> list[str]:
    text = f"clusters: [americas]\nsecurity:\n  tls: {{{tls}}}\n" + (
        f"  client: {{{client}}}\n" if client else ""
    )
    path = write_topology(folder, text, **clusters)
    with pytest.raises(ConfigurationError) as caught:
        load_topology(path)
    return [f"{problem.key_path}: {problem.rule}" for problem in caught.value.problems]


def tls(files: Certificates, **more: str) -> str:
    keys = {"certificate": files.certificate, "key": files.key, "authority": files.authority, **more}
    return ", ".join(f"{key}: {value}" for key, value in keys.items())


def test_a_valid_part_becomes_absolute_paths_and_ports(tmp_path: Path) -> None:
    files = GOOD()
    path = write_topology(tmp_path, f"clusters: [americas]\nsecurity: {{tls: {{{tls(files)}}}}}\n")
    topology = load_topology(path)
    assert topology.security.tls is not None
    assert topology.security.tls.files == files
    assert type(topology).from_json(topology.to_json()) == topology


def test_a_missing_file_is_reported_at_its_key(tmp_path: Path) -> None:
    names = "certificate: no/server.pem, key: no/server.key, authority: no/ca.pem"
    assert sorted(problems(tmp_path, names)) == [
        f"security.tls.{key}: must be a readable file; it does not exist"
        for key in ("authority", "certificate", "key")
    ]


def test_a_file_that_is_no_certificate_and_a_key_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    files = GOOD()
    assert problems(tmp_path, tls(files, certificate="text")) == [
        "security.tls.certificate: must be a file of PEM certificates"
    ]
    assert problems(tmp_path, tls(files, key="text")) == [
        "security.tls.key: must be a file with a PEM private key"
    ]
    assert problems(tmp_path, tls(files, key=str(tmp_path))) == [
        "security.tls.key: must be a readable file; Is a directory"
    ]


def test_a_key_or_an_authority_of_another_certificate(tmp_path: Path) -> None:
    files, other = GOOD(), GOOD("other")
    assert problems(tmp_path, tls(files, key=other.key)) == [
        "security.tls.key: must be the key of the certificate beside it"
    ]
    assert problems(tmp_path, tls(files, authority=other.authority)) == [
        "security.tls.certificate: must be issued by security.tls.authority"
    ]


def test_a_certificate_that_is_not_valid_now(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, tls(authority.expired_files()))
    assert problem.startswith("security.tls.certificate: must be valid now; it expired at 2")
    future = datetime.now(UTC) + timedelta(days=1)
    later: Issued = self_signed("later", Validity(future, future + timedelta(days=1)))
    files = authority.write(later, tmp_path / "later")
    (problem,) = problems(tmp_path, tls(files))
    assert problem.startswith("security.tls.certificate: must be valid now; it is valid from 2")


def test_a_certificate_for_other_hosts(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, tls(authority.files_for("pulsar.example", "10.1.1.1")))
    assert problem == (
        "security.tls.certificate: must be valid for 127.0.0.1, at which programs reach a region; it names "
        "pulsar.example, 10.1.1.1 (`geoemu certs` creates one for all regions)"
    )


def test_required_client_certificates_need_one_of_the_own_programs(tmp_path: Path) -> None:
    files, own = GOOD(), authority.client_files()
    (problem,) = problems(tmp_path, tls(files, client_certificates="required"))
    assert problem.startswith(
        "security.tls.client_certificates: must not be required without security.client"
    )
    assert problems(tmp_path, tls(files), f"certificate: {own.certificate}") == [
        "security.client.certificate: must be given together with key"
    ]
    wrong = authority.client_files("other")
    assert problems(tmp_path, tls(files), f"certificate: {wrong.certificate}, key: {wrong.key}") == [
        "security.client.certificate: must be issued by security.tls.authority"
    ]


def test_ports_with_tls_need_tls(tmp_path: Path) -> None:
    path = write_topology(tmp_path, "clusters: [one]\n", one="regions:\n  us: {service_port_tls: 6651}\n")
    with pytest.raises(
        ConfigurationError, match=r"service_port_tls: 6651: must be omitted without security.tls"
    ):
        load_topology(path)


def test_fixed_ports_with_tls_must_be_unused(tmp_path: Path) -> None:
    cluster = "regions:\n  us: {service_port: 6650, service_port_tls: 6650}\n"
    assert problems(tmp_path, tls(GOOD()), americas=cluster) == [
        "regions.us.service_port_tls: must be an unused port; service_port of us uses it"
    ]


def test_files_may_be_environment_variables_which_a_topology_is_checked_without(tmp_path: Path) -> None:
    files, names = GOOD(), {"certificate": "env:CERT", "key": "env:KEY", "authority": "env:CA"}
    client = "certificate: env:APP_CERT, key: env:APP_KEY"
    part = f"tls: {{{tls(files, **names)}, client_certificates: required}}, client: {{{client}}}"
    path = write_topology(tmp_path, f"clusters: [americas]\nsecurity: {{{part}}}\n")
    security = load_topology(path).security
    assert security.tls is not None
    assert security.tls.files == Certificates("env:CA", "env:CERT", "env:KEY")
    assert security.of_clients == Certificates("env:CA", "env:APP_CERT", "env:APP_KEY")
    for changed in names:
        one = write_topology(
            tmp_path, f"clusters: [americas]\nsecurity: {{tls: {{{tls(files, **{changed: 'env:X'})}}}}}\n"
        )
        assert load_topology(one).security.tls is not None
    assert problems(tmp_path, tls(files, key="'env:'")) == [
        "security.tls.key: must be a path, or env:NAME with the name of an environment variable"
    ]
