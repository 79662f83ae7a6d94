"""`explain` gives a reason for every "why not", and the reason matches the region's behaviour."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.broker.explain.topics import EXPLAINERS, NotKnown, explain, names
from emulator.client import Client
from emulator.model.explanations import KINDS, Explanation
from tests.broker.regions import Regions, regions, until

TOPIC = "persistent://public/default/orders"


def explained(world: Regions, region: str, kind: str, name: str) -> Explanation:
    return explain(world.running[region], kind, name)


def test_every_kind_has_an_explainer() -> None:
    assert EXPLAINERS.keys() == KINDS.keys()


async def test_explanations_of_all_kinds_have_the_same_fields() -> None:
    """E1, for every object of two linked regions with a replicated subscription."""
    async with regions("us", "eu") as world, world.client("us") as us:
        await us.subscribe(TOPIC, "billing", replicated=True)
        await (await us.producer(TOPIC)).send(b"hello")
        async with Client(f"pulsar://127.0.0.1:{world.ports['us']}", transaction_key="task") as keyed:
            await keyed.new_transaction()
            for kind in KINDS:
                known = names(world.running["us"], kind)
                assert known, kind
                for name in known:
                    one = explained(world, "us", kind, name)
                    assert (one.region, one.kind) == ("us", kind)
                    assert one.what
                    assert Explanation.from_json(one.to_json()) == one
                    assert not one.waits_for or one.why, one


async def test_names_may_contain_spaces() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        for topic, subscription in (("a b", "c"), ("a", "b c")):
            await us.subscribe(topic, subscription)
        assert explained(world, "us", "topic", "a b").name == "persistent://public/default/a b"
        both = explained(world, "us", "subscription", "public/default/a b c")
        assert both.name == "persistent://public/default/a b c"
        with pytest.raises(NotKnown):
            explained(world, "us", "topic", "a b c")


async def test_a_normal_state_has_no_reason() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        await (await us.producer(TOPIC)).send(b"hello")
        replicator = world.running["us"].directory.serving[TOPIC].replicators["eu"]
        await until(lambda: replicator.backlog == 0)
        one = explained(world, "us", "replication", "orders eu")
        assert (one.name, one.what, one.why, one.waits_for) == (f"{TOPIC} eu", "eu has all entries", "", ())
        link = explained(world, "us", "link", "us eu")
        assert (link.what, link.why, link.waits_for) == ("established", "", ())
        assert explained(world, "us", "topic", "orders").why == ""


@pytest.mark.usefixtures("simulation")
async def test_a_replicator_that_cannot_send_names_the_link_and_the_link_its_reason() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        producer = await us.producer(TOPIC)
        await producer.send(b"hello")
        replicator = world.running["us"].directory.serving[TOPIC].replicators["eu"]
        await until(lambda: replicator.backlog == 0)
        before = explained(world, "us", "link", "us eu")
        world.cut("us", "eu")
        await until(lambda: not world.running["us"].peers["eu"].connected)
        await producer.send(b"hello")
        one = explained(world, "us", "replication", "orders eu")
        assert one.what == "eu lacks 1 entry at most"
        assert one.why == "the link is down"
        assert one.waits_for == ("link us eu", "or replication_clusters to leave out eu")
        link = explained(world, "us", "link", "us eu")
        assert link.what == "not established"
        assert link.why
        assert before.since_ms is not None
        assert link.since_ms is not None
        assert link.since_ms >= before.since_ms
        assert "replication orders eu" in explained(world, "us", "topic", "orders").waits_for


async def test_a_subscription_without_consumers_waits_for_one() -> None:
    async with regions("us") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "billing")
        await consumer.close()
        await (await us.producer(TOPIC)).send(b"hello")
        one = explained(world, "us", "subscription", "orders billing")
        assert "1 of the entries after it" in one.what
        assert one.why == "no consumer is connected here"
        assert one.waits_for == (
            "a consumer in this region, or in a region that sends its position to this one",
        )


@pytest.mark.usefixtures("simulation")
async def test_a_snapshot_that_cannot_complete_names_the_link() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        await us.subscribe(TOPIC, "billing", replicated=True)
        await (await us.producer(TOPIC)).send(b"hello")
        world.cut("us", "eu")
        await until(lambda: "link to eu is down" in explained(world, "us", "snapshot", "orders").why)
        one = explained(world, "us", "snapshot", "orders")
        assert one.waits_for == ("link us eu", "or replication_clusters to leave out eu")


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        (
            "topics",
            "orders",
            "'topics' is not a kind (did you mean 'topic'?); there are topic, subscription,",
        ),
        ("topic", "ordres", "has no topic 'ordres' (did you mean 'orders'?); a name is TOPIC"),
        ("subscription", "orders biling", "(did you mean 'orders billing'?); a name is TOPIC SUBSCRIPTION"),
        ("link", "us asia", "region us has no link 'us asia'"),
        ("topic", "", "has no topic ''"),
    ],
)
async def test_an_unknown_kind_or_name_is_refused_with_the_nearest_known_one(
    kind: str, name: str, sentence: str
) -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        await us.subscribe(TOPIC, "billing")
        with pytest.raises(NotKnown) as refused:
            explained(world, "us", kind, name)
        assert sentence in str(refused.value)


async def test_an_explanation_loads_no_topic() -> None:
    async with regions("us") as world:
        with pytest.raises(NotKnown):
            explained(world, "us", "topic", "orders")
        assert not world.running["us"].directory.all_names()


def test_the_component_page_lists_the_kinds() -> None:
    page = (Path(__file__).parents[3] / "docs" / "components" / "explain.md").read_text()
    for name, kind in KINDS.items():
        assert f"| `{name}` | {' '.join(kind.words)} |" in page


async def test_a_path_of_the_configuration_is_shown_with_its_version() -> None:
    async with regions("us") as world:
        (path,) = [one for one in names(world.running["us"], "metadata") if one.startswith("namespace/")]
        one = explained(world, "us", "metadata", path)
        assert "version 0" in one.what
        assert "deduplication" in one.what
        assert (one.why, one.waits_for) == ("", ())
