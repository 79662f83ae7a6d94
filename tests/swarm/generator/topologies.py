"""Draw the topology of a run: regions, the links between them, disks, and the settings of all brokers.

Settings are drawn small, so that windows fill, caches overflow and checkpoints are written many times within seconds:
events that are rare in production must be common in a short run.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.region import NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.remote_log import RemoteFaults
from emulator.simulation.world import NAMESPACE, SERVICE_PORT

REGION_NAMES = ("us", "eu", "ap", "sa", "af")


def draw_topology(random: Random, size: int, count: int | None = None) -> Topology:
    """Draw a topology of `size` regions in `count` clusters; None: in a random number of clusters."""
    names = REGION_NAMES[:size]
    settings = _settings(random)
    count = random.randint(1, min(3, size)) if count is None else count
    clusters: dict[str, list[RegionSpec]] = {f"cluster-{number}": [] for number in range(count)}
    for number, name in enumerate(names):
        cluster = f"cluster-{number if number < count else random.randrange(count)}"
        region = RegionSpec(name, cluster, host=name, service_port=SERVICE_PORT, settings=settings)
        clusters[cluster].append(region)
    return Topology(
        name="swarm",
        path=Path("topology.yaml"),
        clusters=tuple(ClusterSpec(name, tuple(members)) for name, members in clusters.items()),
        links=tuple(_link(random, one, other) for one in names for other in names if one != other),
        namespaces=(NamespaceConfig(NAMESPACE, names, deduplication=random.random() < 0.85),),
    )


def _link(random: Random, source: str, target: str) -> LinkSpec:
    latency = random.choice((0.5, 5.0, 20.0, 80.0, 150.0)) * random.uniform(0.5, 1.5)
    jitter = latency * random.choice((0.0, 0.1, 1.0))
    bandwidth = random.choices((None, 20_000, 200_000), (8, 1, 1))[0]
    return LinkSpec(source, target, LinkShape(round(latency, 3), round(jitter, 3), bandwidth))


def _settings(random: Random) -> BrokerSettings:
    choose = random.choice
    return BrokerSettings(
        keep_alive_interval_ms=choose((1_000, 3_000, 30_000)),
        peer_keep_alive_interval_ms=choose((500, 1_000)),
        peer_reconnect_backoff_ms=choose((5, 50)),
        replication_window_entries=choose((1, 3, 10, 1_000)),
        replication_window_bytes=choose((300, 2_000, 8_388_608)),
        snapshot_interval_ms=choose((50, 300, 1_000)),
        snapshot_timeout_ms=choose((6_000, 30_000)),
        snapshot_cache_size=choose((1, 3, 30)),
        failover_delay_ms=choose((0, 50, 500)),
        max_unacked_messages_per_consumer=choose((3, 50, 50_000)),
        region_tail_bytes=choose((1, 1_500, 20_000, 67_108_864)),
        state_checkpoint_entries=choose((1, 5, 20, 100)),
    )


def draw_disk(random: Random) -> DiskFaults:
    return DiskFaults(
        commit_seconds=random.choice(((0.0002, 0.002), (0.002, 0.02), (0.01, 0.06))),
        stall_probability=random.choice((0.0, 0.0, 0.03)),
        stall_seconds=(0.05, 0.4),
        read_seconds=random.choice(((0.0, 0.0), (0.001, 0.02), (0.01, 0.15))),
        id_jump_probability=random.choice((0.0, 0.0, 0.2)),
    )


def draw_remote(random: Random) -> RemoteFaults:
    return RemoteFaults(
        commit_seconds=random.choice(((0.0005, 0.004), (0.002, 0.02), (0.01, 0.2))),
        stall_probability=random.choice((0.0, 0.0, 0.03)),
        stall_seconds=(0.05, 0.4),
        read_seconds=random.choice(((0.0, 0.0), (0.001, 0.02), (0.01, 0.15))),
        id_jump_probability=random.choice((0.0, 0.2)),
        lost_answer_probability=random.choice((0.0, 0.0, 0.05)),
        gives_up_seconds=random.choice((None, None, 1.0)),
        takeover_seconds=random.choice(((0.0, 0.02), (0.0, 0.3))),
    )
