"""The partitions that a scenario's topics have, created before its first step."""

from __future__ import annotations

import json
from collections.abc import Iterator

from emulator.model.values import TopicName
from emulator.scenarios.run_context import Playing, StepFailed

CREATED = (204, 409)
"""It is there now, or was already: another cluster may have told of it."""
CREATE_SECONDS = 30.0


async def create_partitions(play: Playing) -> None:
    """In each cluster that has a region of the topic: clusters need not share what they know. StepFailed."""
    for topic, count in play.scenario.partitions.items():
        namespace = TopicName.parse(topic).full_namespace
        for region in _one_of_each_cluster(play, namespace):
            sentence = f"{topic} does not have {count} partitions in {region}"
            await play.in_time(CREATE_SECONDS, _create(play, region, topic, count), sentence.__str__)


def _one_of_each_cluster(play: Playing, namespace: str) -> Iterator[str]:
    sharers = next(one.regions for one in play.runtime.topology.namespaces if one.name == namespace)
    for cluster in play.runtime.topology.clusters:
        members = [region.name for region in cluster.regions if region.name in sharers]
        if members:
            yield members[0]


async def _create(play: Playing, region: str, topic: str, count: int) -> None:
    """Told to be there, and seen to be there: somebody else's number would be another story."""
    path = f"/admin/v2/{topic.replace('://', '/', 1)}/partitions"
    status = (await play.regions())[region]
    try:
        code, said = await play.stage.call_region(status, "PUT", path, count)
        if code in CREATED:
            code, said = await play.stage.call_region(status, "GET", path, None)
    except OSError as silence:
        raise StepFailed(f"{region} does not respond: {silence}") from None
    if code != 200 or json.loads(said).get("partitions") != count:
        answer = f"{code} {said.decode(errors='replace')}"
        raise StepFailed(f"{topic} does not have {count} partitions in {region}: {answer}")
