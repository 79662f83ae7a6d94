"""`geoemu certs`: what it creates, what it refuses, and that nothing is overwritten without --renew."""

from __future__ import annotations

import stat
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from emulator.config.certificates import CLOCK_TOLERANCE
from emulator.config.loading import load_topology
from emulator.config.security_files import host_names
from tests.cli.test_cli import geoemu
from tests.runtimes.fixtures import write_topology

SECURITY = (
    "security: {tls: {certificate: certs/server.pem, key: certs/server.key, authority: certs/ca.pem}}\n"
)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def purposes(path: Path) -> set[x509.ObjectIdentifier]:
    return set(certificate(path).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_certificates_are_valid_for_a_topology_that_names_them(tmp_path: Path) -> None:
    topology = write_topology(tmp_path, more=SECURITY)
    done = geoemu(
        "certs", "certs", "--client", "app", "--host", "pulsar.example", "-f", str(topology), folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    certs = tmp_path / "certs"
    assert {path.name for path in certs.iterdir()} == {
        f"{name}.{suffix}" for name in ("ca", "server", "client-app") for suffix in ("pem", "key")
    }
    for path in certs.glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(host_names(certificate(certs / "server.pem"))) == {
        *("localhost", "127.0.0.1", "::1", "us-east", "us-west", "eu-central", "pulsar.example")
    }
    assert purposes(certs / "server.pem") == {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    assert purposes(certs / "client-app.pem") == {ExtendedKeyUsageOID.CLIENT_AUTH}
    (role,) = certificate(certs / "client-app.pem").subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert role.value == "app"
    assert "certificate: certs/server.pem" in done.stdout
    assert load_topology(topology).security.tls is not None


def test_existing_certificates_are_not_overwritten_and_renewed_ones_keep_their_names(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    assert geoemu("certs", "certs", "--host", "a.example", folder=tmp_path).returncode == 0
    before = contents(certs)
    again = geoemu("certs", "certs", folder=tmp_path)
    assert again.returncode == 2
    assert "--renew" in again.stderr
    assert contents(certs) == before
    assert geoemu("certs", "certs", "--client", "later", folder=tmp_path).returncode == 0
    assert {name: contents(certs)[name] for name in before} == before
    assert geoemu("certs", "certs", "--renew", "--expires", "40m", folder=tmp_path).returncode == 0
    after = contents(certs)
    assert after["ca.pem"] == before["ca.pem"]
    assert {name for name in before if after[name] != before[name]} == {"server.pem", "server.key"}
    assert "a.example" in host_names(certificate(certs / "server.pem"))
    renewed = certificate(certs / "server.pem")
    renewed.verify_directly_issued_by(certificate(certs / "ca.pem"))
    lifetime = renewed.not_valid_after_utc - renewed.not_valid_before_utc
    assert lifetime == CLOCK_TOLERANCE + timedelta(minutes=40)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("certs", "--renew"), "cannot be used as a certificate"),
        (("certs", "--host", "not a host"), "must be an IPv4 address"),
        (("certs", "--client", "../evil"), "must be 1 to 63 of letters"),
        (("certs", "--client", "a", "--renew"), "omit --client"),
        (("certs", "-f", "none.yaml"), "no such file"),
        (("certs", "--expires", "365"), "must be a duration"),
        (("certs", "--expires", "36501d"), "at most 36500d"),
        (("file/certs",), "cannot be written"),
        (("stray",), "exists without its certificate"),
    ],
)
def test_wrong_input_gets_one_clear_error_and_changes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "stray").mkdir()
    (tmp_path / "stray" / "server.key").touch()
    done = geoemu("certs", *arguments, folder=tmp_path)
    assert done.returncode in (1, 2)
    assert sentence in " ".join(done.stderr.split())
    assert not (tmp_path / "certs").exists()
    assert not list((tmp_path / "stray").glob("*.pem"))
