"""The first lines of Python of somebody whose regions just came up."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.config.region import NamespaceConfig
from emulator.runtimes.contract import RegionStatus

RECEIVE_MS = 5_000


def quickstart(namespaces: Sequence[NamespaceConfig], regions: Sequence[RegionStatus]) -> str:
    """Publishes in one region and receives in the one farthest down the list that has the same namespace.
    Empty when no namespace is in any region."""
    urls = {region.name: region.service_url for region in regions}
    namespace = max(namespaces, key=lambda namespace: len(namespace.regions), default=None)
    if namespace is None or not namespace.regions:
        return ""
    first, last = namespace.regions[0], namespace.regions[-1]
    return (
        "import pulsar\n"
        f'topic = "persistent://{namespace.name}/hello"\n'
        f'here = pulsar.Client("{urls[first]}")  # {first}\n'
        f'there = pulsar.Client("{urls[last]}")  # {last}\n'
        'consumer = there.subscribe(topic, "me", initial_position=pulsar.InitialPosition.Earliest)\n'
        'here.create_producer(topic).send(b"hello, world")\n'
        f"print(consumer.receive(timeout_millis={RECEIVE_MS}).data())\n"
    )
