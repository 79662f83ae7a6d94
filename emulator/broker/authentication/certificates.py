"""Authentication by client certificates, as by Pulsar's AuthenticationProviderTls."""

from __future__ import annotations

from typing import Any

from emulator.broker.authentication.credentials import Credential, Refused, checked_role


class CertificateProvider:
    """Returns the role of a certificate that TLS has verified. The connection ends with TLS, so it never expires."""

    def verify(self, data: bytes, certificate: Any, now_ms: int) -> Credential:
        """Return the role: the common name. Refused without a certificate, or one with another number of names."""
        if not certificate:
            raise Refused("certificate", "the client presented no certificate")
        names = [
            value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"
        ]
        if len(names) != 1:
            raise Refused("certificate", f"the certificate has {len(names)} common names instead of one")
        return Credential(checked_role(names[0], "the certificate"))
