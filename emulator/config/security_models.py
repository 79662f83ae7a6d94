"""The fields of `security:` in `topology.yaml`. Paths are relative to that file. See docs/SECURITY.md."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from emulator.config.config_model import ConfigModel

FilePath = Annotated[str, Field(min_length=1)]


class TlsPart(ConfigModel):
    """TLS of all regions, for clients and between the regions. Files are PEM, and are read again when they change."""

    certificate: FilePath
    """Certificate of the regions, with its chain. It must be valid for their host names, of which it may have many."""
    key: FilePath
    """Private key of the certificate, without a password."""
    authority: FilePath
    """Certificates of the authorities that issue the certificates of regions and clients."""
    client_certificates: Literal["none", "optional", "required"] = "optional"
    """none: not requested. optional: verified if the client has one. required: connections without one fail."""
    plain_ports: bool = True
    """Whether the ports without TLS are open, too."""


class ClientPart(ConfigModel):
    """Credentials that geoemu's own programs present to regions: commands, scenarios, programs that read
    `geoemu env`."""

    certificate: FilePath | None = None
    """Certificate of a client, with its chain (TLS)."""
    key: FilePath | None = None
    """Private key of the certificate, without a password."""


class SecurityPart(ConfigModel):
    """Security of all regions. Default: no TLS."""

    tls: TlsPart | None = None
    """TLS. Default: none."""
    client: ClientPart | None = None
    """Credentials of geoemu's own programs. Default: none."""
