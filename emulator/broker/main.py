"""The program of one region: `python -m emulator.broker region.json`.

The only module that combines a broker with a real network, a real clock and a concrete store.

Exit codes: 0 stopped in an orderly way, 1 fenced or an unexpected error, 2 could not start, or a foreseen error (one
sentence on stderr).
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from emulator.broker.admin.server import Admin
from emulator.broker.environment import Environment, ShiftedClock
from emulator.broker.links.emulation import EmulatedLink, EmulatedNetwork
from emulator.broker.log_output import FORMATS, set_format, silence_kafka_client
from emulator.broker.metadata.config_changelog import ConfigChangelog
from emulator.broker.region import Region
from emulator.config.region import RegionConfig
from emulator.errors import GeoemuError
from emulator.model.stored_keys import CONFIGURATION_KEY
from emulator.model.values import CLIENTS
from emulator.net.addresses import in_url
from emulator.net.network import SocketNetwork
from emulator.net.tls import TlsNetwork
from emulator.storage.configuration.contract import ConfigurationMedium
from emulator.storage.contract import Store
from emulator.storage.faulty import FaultyStore, with_faults

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_SECONDS = 100e-6
"""Seconds after which a running thread passes the interpreter's lock to a waiting thread.

Python's default of 5 ms starves the store's writer when the loop is never idle: each time the loop polls its sockets it
releases the lock for a moment, which restarts the 5 ms. With that default an append took 6 s.
"""
KILLED_EXIT_CODE = 128 + signal.SIGKILL
OWNER_CHECK_SECONDS = 0.5
"""Seconds between two checks whether the owner process still runs."""


async def open_store(config: RegionConfig) -> Store:
    """Open the configured backend of the log; no other backend is imported."""
    match config.log.backend:
        case "sqlite":
            from emulator.storage.sqlite.store import open_sqlite

            return await open_sqlite(Path(config.log.path), config.region)
        case "memory":
            from emulator.storage.memory import MemoryStore

            return await MemoryStore.open(region=config.region)
        case "kafka":
            from emulator.storage.kafka import open_kafka

            return await open_kafka(config.region, config.log.bootstrap_servers, config.log.options)
        case other:
            raise ValueError(f"log backend {other!r} is none of sqlite, memory, kafka")


def import_default_backend() -> None:
    """Import the backend of regions whose topology names none, so that processes which are forked later share it."""
    import emulator.storage.configuration.sqlite
    import emulator.storage.sqlite.store  # noqa: F401


async def open_configuration(config: RegionConfig, store: Store) -> ConfigurationMedium:
    """Open the configuration store of the region's cluster: without a path, an empty one in memory. The region's store
    records its identity, so that a restarted region opens the same one, unless that is recorded as lost."""
    if not config.configuration.path:
        from emulator.storage.configuration.memory import MemoryConfiguration

        return MemoryConfiguration()
    from emulator.run.lost_stores import lost_configurations
    from emulator.storage.configuration.sqlite import open_sqlite_configuration

    path = Path(config.configuration.path)
    stored = store.get(CONFIGURATION_KEY.text)
    known = None if stored is None else stored.value.decode()
    if known in lost_configurations(path):
        known = None
    medium = await open_sqlite_configuration(path, config.cluster, known=known)
    if known is None:
        await store.put(CONFIGURATION_KEY.text, medium.identity.encode())
    return medium


async def run(config: RegionConfig, ready: Callable[[], None]) -> int:
    """Serve until the region is stopped, and return the exit code. `ready` is called once clients can use the region.
    OSError, ValueError or GeoemuError when it cannot start."""
    network = SocketNetwork()
    rng = random.Random()
    links = {peer.region: EmulatedLink(peer.outbound, peer.inbound, rng) for peer in config.peers}
    client_link = EmulatedLink(config.to_clients, config.from_clients, rng, clients=True)
    store = with_faults(await open_store(config), rng)
    links_by_address = {peer.address: links[peer.region] for peer in config.peers}
    tls_network = _tls_network(config)
    clock = config.clock_ahead_ms, config.clock_drift_ppm, config.clock_set_at_ms
    environment = Environment(
        wall_clock_ms=ShiftedClock(lambda: time.time_ns() // 1_000_000, *clock),
        random=rng,
        network=network,
        peer_network=EmulatedNetwork(tls_network or network, links_by_address),
        tls_network=tls_network,
        store=store,
        configuration=await open_configuration(config, store),
        client_link=client_link,
        lose_power=partial(_lose_power, store),
    )
    region = Region(config, environment)
    for link in (*links.values(), client_link):
        link.note_frame_faults(partial(region.resources.protocol_events.note, "frame_fault"))
    if tls_network is not None:
        tls_network.note_refusal = region.resources.refused_authentications.note_handshake
    admin = Admin(region, {**links, CLIENTS: client_link})
    try:
        await region.start()
        store.set_condition(config.disk)
        if config.configuration.deliveries:
            write = partial(_append_line, Path(config.configuration.deliveries))
            ConfigChangelog(write, config.region, environment).follow(region.metadata)
        admin_port = await admin.start()
    except OSError as failure:
        await environment.configuration.close()
        await environment.store.close()
        raise OSError(f"region {config.region} cannot listen on {_ports(config)}: {failure}") from failure
    ports = region.clients.ports
    served = {"pid": os.getpid(), "service_port": ports.service_port, "admin_port": admin_port}
    if tls_network is not None:
        served |= {"service_port_tls": ports.service_port_tls, "admin_port_tls": admin.port_tls}
    _write_ready_file(config, served)
    # Most objects allocated until now live until the end: exclude them from garbage collection. Collecting before would
    # take a tenth of the time since the start, to free a hundredth of the objects.
    gc.freeze()
    gc.enable()
    ready()
    exit_code = await _wait_for_stop(config, region)
    admin.close()
    await region.stop()
    _write_ready_file(config, {**served, "stopped": exit_code == 0})
    return exit_code


def _tls_network(config: RegionConfig) -> TlsNetwork | None:
    """Return the network of the ports with TLS and of the links to peers; None without TLS."""
    tls = config.security.tls
    return None if tls is None else TlsNetwork(tls.files, tls.client_certificates)


def _ports(config: RegionConfig) -> str:
    plain = (config.service_port, config.admin_port) if config.has_plain_ports else ()
    secured = () if config.security.tls is None else (config.service_port_tls, config.admin_port_tls)
    return f"{in_url(config.bind_host)}, ports {', '.join(map(str, (*plain, *secured)))}"


def _lose_power(store: FaultyStore) -> None:
    """End this process as a power loss of its machine does."""
    store.lose_power()
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(KILLED_EXIT_CODE)  # the first process of a container cannot kill itself


def _append_line(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


def _write_ready_file(config: RegionConfig, content: Mapping[str, int]) -> None:
    """Replace the ready file atomically, if one is configured: when the region serves, and again after it stopped."""
    if not config.ready_file:
        return
    path = Path(config.ready_file)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)


async def _wait_for_stop(config: RegionConfig, region: Region) -> int:
    """Wait for SIGTERM, SIGINT, the region's `end`, or the end of the owner process. Return the exit code."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    waits: list[asyncio.Task[object]] = [loop.create_task(stop.wait()), loop.create_task(region.end.wait())]
    if config.owner_pid:
        waits.append(loop.create_task(_wait_for_owner_end(config.owner_pid)))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    return 1 if region.end.is_fenced else 0


async def _wait_for_owner_end(pid: int) -> None:
    """Wait until the process that owns this region no longer exists; the region must not outlive it."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            logger.info("the process that owns this region (%d) ended; stopping", pid)
            return
        except PermissionError:
            pass
        await asyncio.sleep(OWNER_CHECK_SECONDS)


def main(arguments: list[str]) -> int:
    """Run the program with command line arguments, and return its exit code."""
    log_format = ""
    if len(arguments) == 3 and arguments[0] == "--log-format":
        log_format, arguments = arguments[1], arguments[2:]
    if len(arguments) != 1 or log_format not in ("", *FORMATS):
        print("usage: python -m emulator.broker [--log-format text|json] REGION_JSON", file=sys.stderr)
        return 2
    try:
        return serve(RegionConfig.load(Path(arguments[0])), log_format)
    except (OSError, ValueError) as problem:
        return _not_started(problem)


def serve(config: RegionConfig, log_format: str = "", ready: Callable[[], None] = lambda: None) -> int:
    """Serve a region in this process until it is stopped, and return the exit code. An empty `log_format`: the
    configured one."""
    logging.basicConfig(level=logging.INFO)
    silence_kafka_client()
    gc.set_threshold(50_000, 20, 20)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    try:
        set_format(log_format or config.log_format)
        return asyncio.run(run(config, ready))
    except (OSError, ValueError, GeoemuError) as problem:
        return _not_started(problem)


def _not_started(problem: Exception) -> int:
    print(f"geoemu: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
