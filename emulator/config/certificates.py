"""Create throwaway certificates: an authority, a certificate for all regions, and certificates of clients.

    DIR/ca.pem, ca.key                    the authority
    DIR/server.pem, server.key            the regions, under all their host names; also their certificate as clients
    DIR/client-<role>.pem, .key           a client; the role is the common name

Keys have mode 0600. Existing files are replaced only by `renew`, and each one atomically.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from emulator.config.security_files import host_names
from emulator.errors import Refused

AUTHORITY = "ca"
SERVER = "server"
CLIENT_PREFIX = "client-"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names of this machine, for which the regions' certificate is always valid."""
KEY_BITS = 2048
"""Size of RSA keys, which every client library reads."""
CLOCK_TOLERANCE = timedelta(hours=1)
"""Time before now from which a certificate is valid."""
BOTH_SIDES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""A region accepts connections, and connects to other regions."""


@dataclass(frozen=True, slots=True)
class Validity:
    since: datetime
    until: datetime

    @classmethod
    def from_now(cls, lifetime: timedelta) -> Validity:
        now = datetime.now(UTC)
        return cls(now - CLOCK_TOLERANCE, now + lifetime)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey


class CertificateFolder:
    """A folder of throwaway certificates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, hosts: Iterable[str], roles: Iterable[str], validity: Validity) -> list[Path]:
        """Create all certificates that do not exist; return their files. Raises Refused if none is missing, or the
        folder cannot be written."""
        created = list(self._missing([SERVER, *map(_client_file, roles)]))
        if not created:
            raise Refused(f"{self._folder} already has these certificates: --renew issues them again")
        authority = self._load_authority() if self._path(AUTHORITY, "pem").exists() else None
        self._refuse_stray_keys(created if authority is not None else [AUTHORITY, *created])
        files = []
        if authority is None:
            authority = self_signed("geoemu throwaway authority", validity)
            files += self._write(AUTHORITY, authority)
        for name in created:
            files += self._write(name, self._issue(authority, name, hosts, validity))
        return files

    def renew(self, hosts: Iterable[str], validity: Validity) -> list[Path]:
        """Issue all certificates again with new keys, by the same authority; return their files. The regions'
        certificate keeps its host names. Raises Refused if there is none, or the folder cannot be written."""
        authority = self._load_authority()
        names = sorted(path.stem for path in self._folder.glob("*.pem") if path.stem != AUTHORITY)
        if not names:
            raise Refused(f"{self._folder} has no certificate to renew")
        files = []
        for name in names:
            known = host_names(_read(self._path(name, "pem"))) if name == SERVER else []
            files += self._write(
                name, self._issue(authority, name, dict.fromkeys([*known, *hosts]), validity)
            )
        return files

    def _refuse_stray_keys(self, names: Iterable[str]) -> None:
        for name in names:
            if self._path(name, "key").exists():
                raise Refused(f"{self._path(name, 'key')} exists without its certificate: use a new folder")

    def _missing(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if not self._path(name, "pem").exists())

    def _issue(self, authority: Issued, name: str, hosts: Iterable[str], validity: Validity) -> Issued:
        if name == SERVER:
            return issued_by(authority, "geoemu regions", validity, hosts, BOTH_SIDES)
        role = name.removeprefix(CLIENT_PREFIX)
        return issued_by(authority, role, validity, (), (ExtendedKeyUsageOID.CLIENT_AUTH,))

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder / f"{name}.{suffix}"

    def _load_authority(self) -> Issued:
        path, key_path = self._path(AUTHORITY, "pem"), self._path(AUTHORITY, "key")
        certificate = _read(path)
        if certificate.not_valid_after_utc < datetime.now(UTC):
            raise Refused(f"{path} expired at {certificate.not_valid_after_utc:%F %T} UTC: use a new folder")
        try:
            key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as problem:
            raise Refused(f"{key_path} cannot be used as the key of the authority: {problem}") from None
        if not isinstance(key, rsa.RSAPrivateKey) or key.public_key() != certificate.public_key():
            raise Refused(f"{key_path} is not the key of {path}")
        return Issued(certificate, key)

    def _write(self, name: str, issued: Issued) -> list[Path]:
        """Write a certificate and its key. The key is first: a certificate never has an older key beside it."""
        key = issued.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = issued.certificate.public_bytes(serialization.Encoding.PEM)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _replace(self._path(name, "key"), key, 0o600)
            _replace(self._path(name, "pem"), certificate, 0o644)
        except OSError as failure:
            raise Refused(f"{self._folder} cannot be written: {failure.strerror}") from failure
        return [self._path(name, "pem"), self._path(name, "key")]


def self_signed(name: str, validity: Validity) -> Issued:
    """Return a new authority."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    builder = _builder(name, name, key, key, validity)
    usage = {"key_cert_sign": True, "crl_sign": True, "digital_signature": False, "key_encipherment": False}
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return Issued(builder.add_extension(_key_usage(usage), critical=True).sign(key, hashes.SHA256()), key)


def issued_by(
    authority: Issued,
    name: str,
    validity: Validity,
    hosts: Iterable[str],
    purposes: Iterable[x509.ObjectIdentifier],
) -> Issued:
    """Return a new certificate with a common name, for these hosts and purposes."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    issuer = authority.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    builder = _builder(name, str(issuer), key, authority.key, validity)
    usage = {"key_cert_sign": False, "crl_sign": False, "digital_signature": True, "key_encipherment": True}
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(usage), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if names := list(map(_general_name, hosts)):
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    name: str, issuer: str, key: rsa.RSAPrivateKey, signer: rsa.RSAPrivateKey, validity: Validity
) -> x509.CertificateBuilder:
    signer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(_common_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.since)
        .not_valid_after(validity.until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(signer_id, critical=False)
    )


def _key_usage(usage: dict[str, bool]) -> x509.KeyUsage:
    others = ("content_commitment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
    return x509.KeyUsage(**usage, **dict.fromkeys(others, False))


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _client_file(role: str) -> str:
    return f"{CLIENT_PREFIX}{role}"


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as problem:
        raise Refused(f"{path} cannot be used as a certificate: {problem}") from None


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically; it never has another mode."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(file, "wb") as stream:
        os.fchmod(file, mode)
        stream.write(content)
    temporary.replace(path)
