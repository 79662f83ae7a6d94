"""Topic lists: requested with a hash, and watched."""

from __future__ import annotations

from emulator.broker.connection.topic_watchers import WATCHERS_MAX
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.commands import topics_hash
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import Regions, regions, until

PREFIX = "persistent://public/default/"
NAMESPACE = "public/default"


def watch(pattern: str = f"{PREFIX}o.*", watcher_id: int = 1, **fields: str) -> pb.BaseCommand:
    body = pb.CommandWatchTopicList(
        request_id=7, watcher_id=watcher_id, namespace=NAMESPACE, topics_pattern=pattern, **fields
    )
    return pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST, watchTopicList=body)


def get_topics(**fields: object) -> pb.BaseCommand:
    body = pb.CommandGetTopicsOfNamespace(request_id=7, namespace=NAMESPACE, **fields)  # type: ignore[arg-type]
    return pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body)


async def create(world: Regions, *topics: str) -> None:
    async with world.client("us") as client:
        for topic in topics:
            await client.producer(topic)


async def delete(world: Regions, topic: str) -> None:
    await world.running["us"].directory.delete(PREFIX + topic, force=True)


async def update(client: RawClient) -> tuple[list[str], list[str], str]:
    """Return the next WATCH_TOPIC_UPDATE: new topics, deleted topics, the hash."""
    command = await client.next()
    assert command.type == pb.BaseCommand.WATCH_TOPIC_UPDATE
    found = command.watchTopicUpdate
    return list(found.new_topics), list(found.deleted_topics), found.topics_hash


def test_the_hash_is_the_one_that_clients_compute() -> None:
    """Derived from CRC32C's check value 0xE3069283, least significant byte first, as Guava prints it."""
    assert topics_hash(["123456789"]) == "839206e3"
    assert topics_hash(["b", "a"]) == topics_hash(["a", "b"])
    assert topics_hash([]) == "00000000"


async def test_a_list_that_the_client_has_is_not_sent_again() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await create(world, "one", "other", "third")
        first = (await client.ask(get_topics())).getTopicsOfNamespaceResponse
        assert list(first.topics) == [f"{PREFIX}{topic}" for topic in ("one", "other", "third")]
        assert first.changed
        assert not first.filtered
        again = (await client.ask(get_topics(topics_hash=first.topics_hash))).getTopicsOfNamespaceResponse
        assert not again.changed
        assert not again.topics
        request = get_topics(topics_pattern=f"{PREFIX}o.*")
        fitting = (await client.ask(request)).getTopicsOfNamespaceResponse
        assert list(fitting.topics) == [f"{PREFIX}one", f"{PREFIX}other"]
        assert fitting.filtered
        assert fitting.topics_hash == topics_hash(fitting.topics)
        unknown = get_topics(topics_pattern="(?!x)o.*")
        everything = (await client.ask(unknown)).getTopicsOfNamespaceResponse
        assert len(everything.topics) == 3, "the client checks itself"
        assert not everything.filtered
        other_kind = get_topics(mode=pb.CommandGetTopicsOfNamespace.NON_PERSISTENT)
        assert not (await client.ask(other_kind)).getTopicsOfNamespaceResponse.topics


async def test_a_watcher_is_notified_of_created_and_deleted_topics_only() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await create(world, "one")
        begun = (await client.ask(watch())).watchTopicListSuccess
        assert list(begun.topic) == [f"{PREFIX}one"]
        assert begun.watcher_id == 1
        await create(world, "third", "__ours", "other")
        both = [f"{PREFIX}one", f"{PREFIX}other"]
        assert await update(client) == ([f"{PREFIX}other"], [], topics_hash(both))
        await delete(world, "one")
        assert await update(client) == ([], [f"{PREFIX}one"], topics_hash(both[1:]))


async def test_a_watcher_that_returns_with_a_hash_gets_only_the_missed_changes() -> None:
    async with regions("us") as world:
        await create(world, "one")
        async with raw_client(world) as client:
            first = (await client.ask(watch())).watchTopicListSuccess
        async with raw_client(world) as client:
            again = (await client.ask(watch(topics_hash=first.topics_hash))).watchTopicListSuccess
            assert not again.topic
            assert again.topics_hash == first.topics_hash
        await create(world, "other")
        async with raw_client(world) as client:
            later = (await client.ask(watch(topics_hash=first.topics_hash))).watchTopicListSuccess
            assert len(later.topic) == 2


async def test_a_watch_that_is_closed_or_lost_leaves_nothing_behind() -> None:
    async with regions("us") as world:
        lists = world.running["us"].directory.lists
        async with raw_client(world) as client, raw_client(world) as other:
            await client.ask(watch())
            await client.ask(watch(watcher_id=2))
            await other.ask(watch())
            assert len(lists._listings) == 1, "one for all watchers of the same pattern"
            close = pb.CommandWatchTopicListClose(request_id=9, watcher_id=1)
            closed = pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=close)
            assert (await client.ask(closed)).success.request_id == 9
            assert lists._listings
        await until(lambda: not lists._listings and not lists._listed_names)


async def test_an_invalid_pattern_and_too_many_watchers_are_rejected() -> None:
    async with regions("us") as world, raw_client(world) as client:
        refused = (await client.ask(watch("(?=a)"))).error
        assert refused.error == pb.NotAllowedError
        assert "is not supported" in refused.message
        for watcher_id in range(WATCHERS_MAX):
            assert (await client.ask(watch(watcher_id=watcher_id))).HasField("watchTopicListSuccess")
        assert (await client.ask(watch(watcher_id=WATCHERS_MAX))).error.error == pb.NotAllowedError
        assert (await client.ask(watch(watcher_id=0))).HasField("watchTopicListSuccess"), "in its place"


async def test_a_watcher_that_did_not_read_gets_all_changes_at_once() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await client.ask(watch())
        (connection,) = world.running["us"].clients.connections
        connection.pause_writing()
        lists = world.running["us"].directory.lists
        for topic in ("o1", "o2"):
            await create(world, topic)
            await until(lambda topic=topic: PREFIX + topic in lists._listed_names[NAMESPACE])
        connection.resume_writing()
        assert (await update(client))[0] == [f"{PREFIX}o1", f"{PREFIX}o2"]


async def test_a_topic_deleted_and_created_again_is_reported_as_both() -> None:
    """Its subscriptions were deleted with it, so a client that watches has to subscribe again."""
    async with regions("us") as world, raw_client(world) as client:
        await create(world, "one", "other")
        await client.ask(watch())
        both = [f"{PREFIX}one", f"{PREFIX}other"]
        await delete(world, "one")
        await create(world, "one")
        assert await update(client) == ([], both[:1], topics_hash(both[1:]))
        assert await update(client) == (both[:1], [], topics_hash(both))
        await world.running["us"].directory.unload(both[0], "a test")
        await create(world, "one", "orders")
        assert await update(client) == ([f"{PREFIX}orders"], [], topics_hash([*both, f"{PREFIX}orders"]))


async def test_a_watcher_that_did_not_read_is_notified_of_deletion_and_creation() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await create(world, "one")
        await client.ask(watch())
        (connection,) = world.running["us"].clients.connections
        (watcher,) = connection.watchers.values()
        connection.pause_writing()
        await delete(world, "one")
        assert watcher.listing is not None
        await until(lambda: watcher.listing is not None and not watcher.listing.names)
        await create(world, "one")
        await until(lambda: watcher.listing is not None and bool(watcher.listing.names))
        connection.resume_writing()
        one = [f"{PREFIX}one"]
        assert await update(client) == ([], one, topics_hash([]))
        assert await update(client) == (one, [], topics_hash(one))
