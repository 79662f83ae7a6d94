"""Check the files that `security:` of a topology names, and make their paths absolute.

Each problem is reported at the key that names the file. Only topologies with certificates load `cryptography`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.config.authentication_files import absolute, authentication_config
from emulator.config.authorization_roles import authorization_config
from emulator.config.declared import DeclaredTopology
from emulator.config.security import ENVIRONMENT, ClientCredentials, SecurityConfig, TlsConfig
from emulator.config.security_models import SecurityPart
from emulator.config.yaml_errors import KeyPath
from emulator.config.yaml_source import YamlFile
from emulator.net.addresses import LOOPBACK, nearby

if TYPE_CHECKING:
    from cryptography import x509

TLS_PATH: KeyPath = ("security", "tls")
CLIENT_PATH: KeyPath = ("security", "client")


def security_config(part: SecurityPart | None, folder: Path) -> SecurityConfig:
    """Return the security of a topology, with absolute paths. `folder`: that of `topology.yaml`."""
    if part is None:
        return SecurityConfig()

    tls, client = part.tls, part.client
    return SecurityConfig(
        tls=None
        if tls is None
        else TlsConfig(
            absolute(tls.certificate, folder),
            absolute(tls.key, folder),
            absolute(tls.authority, folder),
            tls.client_certificates,
            tls.plain_ports,
        ),
        client=None
        if client is None
        else ClientCredentials(
            absolute(client.certificate, folder),
            absolute(client.key, folder),
            absolute(client.token, folder),
            absolute(client.basic, folder),
        ),
        authentication=authentication_config(part.authentication, folder),
        authorization=authorization_config(part.authorization),
    )


def check_security(declared: DeclaredTopology, part: SecurityPart | None) -> None:
    """Report files that cannot be used, and parts that need another one."""
    file = declared.file
    tls = None if part is None else part.tls
    if tls is None:
        _check_without_tls(declared, part)
        return
    assert part is not None
    folder = Path(file.name).parent
    certificates = _Certificates(file, folder)
    trusted = certificates.load((*TLS_PATH, "authority"), tls.authority)
    chain = certificates.load((*TLS_PATH, "certificate"), tls.certificate)
    certificates.check_pair(chain, trusted, TLS_PATH, tls.key)
    if chain and not file.has_problem_at((*TLS_PATH, "certificate")):
        certificates.check_hosts(chain[0], hosts_of(declared))
    _check_client(certificates, part, trusted)


def _check_without_tls(declared: DeclaredTopology, part: SecurityPart | None) -> None:
    rule = "must be omitted without security.tls"
    if part is not None and part.client is not None:
        for key in ("certificate", "key"):
            if getattr(part.client, key) is not None:
                declared.file.report((*CLIENT_PATH, key), rule)
    for cluster, name, region in declared.regions():
        for key in ("service_port_tls", "admin_port_tls"):
            if key in region.model_fields_set:
                cluster.file.report(("regions", name, key), rule)


def _check_client(certificates: _Certificates, part: SecurityPart, trusted: list[x509.Certificate]) -> None:
    client, file = part.client, certificates.file
    given = set() if client is None else {key for key in ("certificate", "key") if getattr(client, key)}
    if len(given) == 1:
        missing = ({"certificate", "key"} - given).pop()
        file.report((*CLIENT_PATH, given.pop()), f"must be given together with {missing}")
    elif given:
        assert client is not None
        assert client.certificate
        assert client.key
        chain = certificates.load((*CLIENT_PATH, "certificate"), client.certificate)
        certificates.check_pair(chain, trusted, CLIENT_PATH, client.key)
    elif part.tls is not None and part.tls.client_certificates == "required":
        file.report(
            (*TLS_PATH, "client_certificates"),
            "must not be required without security.client.certificate and key, which geoemu's own programs present",
        )


def hosts_of(declared: DeclaredTopology) -> list[str]:
    """Return the hosts at which clients and other regions reach the regions with TLS."""
    regions = (region for _, _, region in declared.regions())
    return list(dict.fromkeys(region.host or nearby(region.listen or LOOPBACK) for region in regions))


@dataclass(frozen=True, slots=True)
class _Certificates:
    """Checks the certificates of one topology."""

    file: YamlFile
    folder: Path

    def load(self, path: KeyPath, name: str) -> list[x509.Certificate]:
        """Return the certificates of a file; none if it cannot be used, which is reported."""
        from cryptography import x509

        content = self._read(path, name)
        if content is None:
            return []
        try:
            found = x509.load_pem_x509_certificates(content)
        except ValueError:
            self.file.report(path, "must be a file of PEM certificates")
            return []
        now = datetime.now(UTC)
        for one in found:
            if one.not_valid_after_utc < now:
                self.file.report(
                    path, f"must be valid now; it expired at {one.not_valid_after_utc:%F %T} UTC"
                )
                return []
            if one.not_valid_before_utc > now:
                since = f"{one.not_valid_before_utc:%F %T} UTC"
                self.file.report(path, f"must be valid now; it is valid from {since}")
                return []
        return found

    def check_pair(
        self, chain: list[x509.Certificate], trusted: list[x509.Certificate], path: KeyPath, key: str
    ) -> None:
        """Report a key that cannot be used or is another one's, and a certificate of another authority."""
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        content = self._read((*path, "key"), key)
        if content is None or not chain:
            return
        try:
            private = load_pem_private_key(content, None)
        except TypeError:
            self.file.report((*path, "key"), "must be a private key without a password")
            return
        except ValueError:
            self.file.report((*path, "key"), "must be a file with a PEM private key")
            return
        if private.public_key() != chain[0].public_key():
            self.file.report((*path, "key"), "must be the key of the certificate beside it")
        if trusted and not any(_issued(chain[-1], one) for one in trusted):
            self.file.report((*path, "certificate"), "must be issued by security.tls.authority")

    def check_hosts(self, certificate: x509.Certificate, hosts: Iterable[str]) -> None:
        """Report a certificate that is not valid for one of the hosts."""
        names = host_names(certificate)
        for host in hosts:
            if not is_valid_for(host, names):
                self.file.report(
                    (*TLS_PATH, "certificate"),
                    f"must be valid for {host}, at which programs reach a region; it names "
                    f"{', '.join(names) or 'no host'} (`geoemu certs` creates one for all regions)",
                )

    def _read(self, path: KeyPath, name: str) -> bytes | None:
        """Return the content of a file; None if it cannot be read, which is reported. None also for an environment
        variable, which is checked when a run begins."""
        if name.startswith(ENVIRONMENT):
            return None
        try:
            return (self.folder / name).read_bytes()
        except OSError as failure:
            reason = "it does not exist" if isinstance(failure, FileNotFoundError) else failure.strerror
            self.file.report(path, f"must be a readable file; {reason}")
            return None


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority issued a certificate, or they are the same."""
    if certificate == authority:
        return True
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # several, by kind of key
        return False
    return True


def host_names(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses for which a certificate is valid."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def is_valid_for(host: str, names: Iterable[str]) -> bool:
    """Whether a certificate with these names is valid for a host."""
    try:
        wanted = str(ipaddress.ip_address(host))
    except ValueError:
        wanted = host.lower()
    parent = wanted.partition(".")[2]
    return any(name.lower() in (wanted, f"*.{parent}" if parent else wanted) for name in names)
