"""Certificates of tests, which the code of `geoemu certs` creates; once per process, because keys take time."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from emulator.config.certificates import (
    BOTH_SIDES,
    LOCAL_HOSTS,
    CertificateFolder,
    Issued,
    Validity,
    issued_by,
)
from emulator.net.tls import Certificates


def folder(name: str = "one") -> Path:
    return _folder(name)


@cache
def _folder(name: str) -> Path:
    """Return a folder with an authority, a certificate for this machine and the regions, and one of the client `app`;
    another name: of another authority."""
    path = Path(tempfile.mkdtemp(prefix=f"geoemu-test-{name}-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    hosts = (*LOCAL_HOSTS, "us-east", "us-west", "eu-central")
    CertificateFolder(path).create(hosts, ["app"], Validity.from_now(timedelta(days=1)))
    return path


def server_files(name: str = "one") -> Certificates:
    return _files(folder(name), "server")


def client_files(name: str = "one", authority: str = "one") -> Certificates:
    """Return the files of the client `app`, which trusts the regions of `authority`."""
    found = _files(folder(name), "client-app")
    return Certificates(str(folder(authority) / "ca.pem"), found.certificate, found.key)


def trusting(name: str = "one") -> Certificates:
    """Return the files of a client without a certificate."""
    return Certificates(str(folder(name) / "ca.pem"))


@cache
def expired_files() -> Certificates:
    """Return the files of a region whose certificate has expired."""
    day, now = timedelta(days=1), datetime.now(UTC)
    return _issue("expired", LOCAL_HOSTS, Validity(now - 2 * day, now - day))


@cache
def files_for(*hosts: str) -> Certificates:
    """Return the files of a region whose certificate is valid for these hosts only."""
    return _issue("-".join(hosts), hosts, Validity.from_now(timedelta(days=1)))


def _issue(name: str, hosts: tuple[str, ...], validity: Validity) -> Certificates:
    authority = CertificateFolder(folder())._load_authority()
    return write(issued_by(authority, name, validity, hosts, BOTH_SIDES), folder() / f"other-{name}")


def write(issued: Issued, path: Path) -> Certificates:
    certificate = issued.certificate.public_bytes(serialization.Encoding.PEM)
    key = issued.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.with_suffix(".crt").write_bytes(certificate)
    path.with_suffix(".key").write_bytes(key)
    return Certificates(
        str(folder() / "ca.pem"), str(path.with_suffix(".crt")), str(path.with_suffix(".key"))
    )


def _files(path: Path, name: str) -> Certificates:
    return Certificates(str(path / "ca.pem"), str(path / f"{name}.pem"), str(path / f"{name}.key"))
