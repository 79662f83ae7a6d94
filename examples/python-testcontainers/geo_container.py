"""Several geo-replicated regions in one container, which a test cuts, kills and heals.

Copy this file into a project and extend it: every verb of the command line works with `GeoContainer.geoemu`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

IMAGE = os.environ.get("GEOEMU_TESTCONTAINERS_IMAGE", "geoemu-region:local-testcontainers")
SERVICE_PORT, ADMIN_PORT = 6650, 8080
READY_SECONDS = 120
TOPOLOGY = """\
name: test
clusters: [geo]
links: {defaults: {latency_ms: 20}}
tenants: [public]
namespaces: {public/default: {regions: all, deduplication: true}}
settings: {proxy_through_service_url: true}
"""


class GeoContainer(DockerContainer):
    """A container with regions, for use in a `with` block."""

    def __init__(self, *regions: str, image: str = IMAGE) -> None:
        super().__init__(image)
        self.regions = regions
        cluster = "regions:\n"
        for number, region in enumerate(regions):
            ports = SERVICE_PORT + number, ADMIN_PORT + number
            cluster += f"  {region}: {{service_port: {ports[0]}, admin_port: {ports[1]}}}\n"
            self.with_exposed_ports(*ports)
        self.with_env("TOPOLOGY", TOPOLOGY).with_env("CLUSTER", cluster)
        write = 'mkdir clusters && echo "$TOPOLOGY" >topology.yaml && echo "$CLUSTER" >clusters/geo.yaml'
        up = "exec geoemu up --listen 0.0.0.0 --insecure"
        self.with_kwargs(working_dir="/geo").with_command(["sh", "-c", f"{write} && {up}"])
        self.waiting_for(LogMessageWaitStrategy("ready after").with_startup_timeout(READY_SECONDS))

    def service_url(self, region: str) -> str:
        return f"pulsar://{self._address(SERVICE_PORT, region)}"

    def admin_url(self, region: str) -> str:
        return f"http://{self._address(ADMIN_PORT, region)}"

    def _address(self, first: int, region: str) -> str:
        port = self.get_exposed_port(first + self.regions.index(region))
        return f"{self.get_container_host_ip()}:{port}"

    @contextmanager
    def cut(self, one: str, other: str) -> Iterator[None]:
        """Drop all traffic between two regions inside the `with` block."""
        self.geoemu("cut", one, other)
        try:
            yield
        finally:
            self.geoemu("heal", one, other)

    def kill(self, region: str) -> None:
        self.geoemu("kill", region)

    def start_region(self, region: str) -> None:
        """Start a killed region on its stored log, and wait until it is ready."""
        self.geoemu("start", region)

    def geoemu(self, *arguments: str) -> str:
        """Run a verb of geoemu's command line in the container, and return its output."""
        code, output = self.get_wrapped_container().exec_run(["geoemu", *arguments], workdir="/geo")
        text = output.decode()
        if code:
            raise RuntimeError(f"geoemu {' '.join(arguments)} ended with {code}: {text}")
        return text
