"""The configuration of a region in its container: its ports, folders and secrets.

Inside the run's network, regions are reached by their names, on Pulsar's own ports:

    pulsar://<region>:6650    for clients in containers, and for the other regions
    http://<region>:8080
    pulsar+ssl://<region>:6651, https://<region>:8443     with TLS

Clients on the host use published ports, which are forwarded to the region's second service port: lookups on it return
the published address, lookups on 6650 and 6651 the name. The files of TLS are mounted as secrets.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path, PurePosixPath

from emulator.config.region import PeerConfig, RegionConfig
from emulator.config.security import SecurityConfig, paths_of, with_paths
from emulator.config.topology import Topology, region_config
from emulator.runtimes.compose.plan import ComposePlan, kafka_owners, kafka_service

INTERNAL_PORT = 6650
INTERNAL_PORT_TLS = 6651
PUBLISHED_PORT = 6652
"""Port in the container to which the published service port is forwarded."""
PUBLISHED_PORT_TLS = 6653
ADMIN_PORT = 8080
ADMIN_PORT_TLS = 8443
KAFKA_INTERNAL_PORT = 9092
REGION_DIR = PurePosixPath("/region")
"""Mount point of the region's folder of the run directory."""
CONFIGURATION_DIR = PurePosixPath("/configuration")
"""Mount point of the configuration store of a region's cluster. It is a volume, because several containers use the file
at once, and file locks may not work in a shared folder of the host. The whole folder is mounted: SQLite needs its other
files beside the database."""
SECRETS_DIR = PurePosixPath("/run/secrets")
"""Folder in which Compose mounts secrets."""
TLS_SECRETS = ("tls-certificate", "tls-key", "tls-authority")


def container_config(plan: ComposePlan, region: str, run_secret: str = "") -> RegionConfig:
    """Return the configuration of one region in its container."""
    names = plan.topology.region_names
    published = plan.published[region]
    owner = kafka_owners(plan.topology, plan.settings).get(region)
    open_ports = [PORTS_IN_CONTAINER[key] for key in plan.topology.wanted_ports(plan.topology.region(region))]
    config = region_config(
        plan.topology,
        region,
        dict.fromkeys(names, plan.topology.region_ports(open_ports)),
        region_dir=Path(REGION_DIR),
        bind_host="0.0.0.0",
        advertised_ports=published.ports,
        peer_hosts={name: name for name in names},
        configuration_dir=Path(CONFIGURATION_DIR),
        bootstrap_servers=None if owner is None else f"{kafka_service(owner)}:{KAFKA_INTERNAL_PORT}",
        run_secret=run_secret,
    )
    return dataclasses.replace(
        config,
        internal_host=region,
        internal_port=INTERNAL_PORT if config.has_plain_ports else 0,
        internal_port_tls=0 if config.security.tls is None else INTERNAL_PORT_TLS,
        peers=tuple(map(_inside, config.peers)),
        security=_security_in_container(config.security),
    )


PORTS_IN_CONTAINER = {
    "service_port": PUBLISHED_PORT,
    "admin_port": ADMIN_PORT,
    "service_port_tls": PUBLISHED_PORT_TLS,
    "admin_port_tls": ADMIN_PORT_TLS,
}


def _inside(peer: PeerConfig) -> PeerConfig:
    """Return a peer with its ports for other regions."""
    return dataclasses.replace(
        peer, port=peer.port and INTERNAL_PORT, port_tls=peer.port_tls and INTERNAL_PORT_TLS
    )


def _security_in_container(security: SecurityConfig) -> SecurityConfig:
    """Return the security of a region, with the paths of its secrets."""
    tls, authentication = security.tls, security.authentication
    if tls is not None:
        certificate, key, authority = (str(SECRETS_DIR / name) for name in TLS_SECRETS)
        tls = dataclasses.replace(tls, certificate=certificate, key=key, authority=authority)
    if authentication is not None:
        authentication = with_paths(
            authentication, {name: str(SECRETS_DIR / name) for name in paths_of(authentication)}
        )
    return dataclasses.replace(security, tls=tls, authentication=authentication)


def secret_files(topology: Topology) -> dict[str, str]:
    """Return the files that are mounted as secrets: their path on this machine by their name."""
    tls, authentication = topology.security.tls, topology.security.authentication
    certificates = () if tls is None else (tls.certificate, tls.key, tls.authority)
    return {
        **dict(zip(TLS_SECRETS, certificates, strict=False)),
        **({} if authentication is None else paths_of(authentication)),
    }
