"""The topics of a region, and which of them are loaded (docs/components/topic-directory.md, D1 to D6).

One slot per name. A slot leaves the table when it is ABSENT and no request waits for it, so requests for names that do
not exist use no memory permanently. The opener assembles topics (`broker/topic_assembly.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from emulator.broker.topic_directory.contract import CreationRules, TopicOpener
from emulator.broker.topic_directory.listing import TopicLists
from emulator.broker.topic_directory.loaded_topic import (
    DamagedTopics,
    FailedStores,
    LoadedTopic,
    LoadState,
    LoadStateChange,
    OpenMode,
    retry_delays,
)
from emulator.broker.topic_directory.stored_topics import LogKind
from emulator.broker.topic_directory.topic_counts import TopicCounts
from emulator.errors import GeoemuError, ProtocolError, ServerError, StorageDamaged, StorageError
from emulator.model.values import NON_PERSISTENT, TopicName
from emulator.storage.contract import Log, Store

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic

logger = logging.getLogger(__name__)

ACQUIRE_ATTEMPTS_MAX = 10
CONCURRENT_LOADS_MAX = 8
"""Maximum number of topics that are opened concurrently after a start, so that clients' requests are served as well."""


class TopicDirectory:
    """All topics of one region."""

    def __init__(
        self,
        opener: TopicOpener,
        store: Store,
        spawn: Callable[[Coroutine[Any, Any, Any]], None],
        rules: CreationRules,
        *,
        check: Callable[[str], TopicName],
    ) -> None:
        """`check`: returns the parsed name of a topic that the region may have, or raises ProtocolError."""
        self._opener = opener
        self._log_names = store.log_names
        self._has_log = store.has_log
        self._spawn = spawn
        self._check = check
        self._rules = rules
        self._slots: dict[str, LoadedTopic] = {}
        self._openings = 0
        self._damaged = DamagedTopics()
        self.failed_stores = FailedStores()
        self._observers: list[Callable[[LoadStateChange], None]] = []
        self._closed = False
        self.serving: dict[str, Topic] = {}
        """Loaded topics that accept clients, by full name; other modules must not change it."""
        self.owing: dict[str, None] = {}
        """Full names of topics with pending work from before the start that are not loaded yet."""
        self.counts = TopicCounts(self._existing_names)
        self.lists = TopicLists(self)

    # Existing topics.

    def names(self, namespace: str) -> list[str]:
        """Return the full names of a namespace's stored (persistent) topics, loaded or not, sorted."""
        prefix = f"{LogKind.MESSAGES.value}://{namespace}/"
        return [name for name in self._log_names() if name.startswith(prefix)]

    def non_persistent_names(self, namespace: str) -> list[str]:
        """Return the full names of a namespace's non-persistent topics, which exist while they are loaded; sorted."""
        prefix = f"{NON_PERSISTENT}://{namespace}/"
        return sorted(name for name in self.serving if name.startswith(prefix))

    def _existing_names(self) -> list[str]:
        """Return the full names of all topics, stored or loaded."""
        loaded = [name for name in self.serving if name.startswith(f"{NON_PERSISTENT}://")]
        return self.all_names() + loaded

    def exists(self, name: str) -> bool:
        """Whether a topic of this full name is stored, in memory, or being opened by a request that may create it."""
        slot = self._slots.get(name)
        if slot is None or slot.state is LoadState.ABSENT:
            return self._has_log(name)
        if slot.state is not LoadState.OPENING or self.counts.is_creating(name) or self._has_log(name):
            return True
        return any(mode is not OpenMode.EXISTING for mode in slot.waiters.values())

    def all_names(self) -> list[str]:
        """Return the full names of the persistent topics of all namespaces, sorted."""
        return [name for name in self._log_names() if name.startswith(f"{LogKind.MESSAGES.value}://")]

    def state_of(self, name: str) -> LoadState:
        slot = self._slots.get(name)
        return LoadState.ABSENT if slot is None else slot.state

    def observe(self, observer: Callable[[LoadStateChange], None]) -> None:
        """Call `observer` synchronously for every change of a topic's load state."""
        self._observers.append(observer)

    # Requests.

    async def acquire(self, name: str, mode: OpenMode) -> Topic:
        """Return a topic, which is loaded or, as far as `mode` allows, created first. ProtocolError or StorageError
        when that is not possible.

        A caller that awaits anything afterwards must check `topic.closed` before it uses the topic.
        """
        slot = self._requested_slot(name)
        if slot.topic is not None and slot.state is LoadState.SERVING:
            return slot.topic
        waiter = self._wait_for(slot, mode)
        try:
            return await waiter
        finally:
            slot.waiters.pop(waiter, None)

    def request(self, name: str, mode: OpenMode) -> Topic | asyncio.Future[Topic]:
        """As `acquire`, without a coroutine: return a loaded topic at once, otherwise a future, which must not be
        cancelled."""
        slot = self._requested_slot(name)
        if slot.topic is not None and slot.state is LoadState.SERVING:
            return slot.topic
        return self._wait_for(slot, mode)

    def _requested_slot(self, name: str) -> LoadedTopic:
        if self._closed:
            raise ProtocolError(ServerError.ServiceNotReady, "the region is stopping")
        parsed = self._check(name)
        full_name = parsed.text
        self._damaged.check(full_name)
        slot = self._slots.get(full_name)
        if slot is None:
            slot = self._slots[full_name] = LoadedTopic(parsed)
        slot.requested_at = asyncio.get_running_loop().time()
        return slot

    def _wait_for(self, slot: LoadedTopic, mode: OpenMode) -> asyncio.Future[Topic]:
        waiter: asyncio.Future[Topic] = asyncio.get_running_loop().create_future()
        slot.waiters[waiter] = mode
        if slot.state is LoadState.ABSENT:
            self._begin_opening(slot)
        return waiter

    def _begin_opening(self, slot: LoadedTopic) -> None:
        self._openings += 1
        slot.incarnation = self._openings
        self._change_state(slot, LoadState.OPENING, "asked for")
        log = self._begin_creating(slot)
        if log is None:
            self._spawn(self._open(slot))
        else:
            log.add_done_callback(partial(self._log_created, slot))

    def _begin_creating(self, slot: LoadedTopic) -> asyncio.Future[Log] | None:
        """Begin to create a missing topic, without a task: most topics need nothing but a log. None: `_open` has to be
        used, also to reject the requests."""
        name = slot.name
        try:
            if not any(self._creates(name, mode) for mode in slot.waiters.values()):
                return None
            self._rules.check_room(name)
        except ProtocolError:
            return None
        log = self._opener.begin_creating(name)
        if log is not None:
            self.counts.begin_creating(name.text)
        return log

    def _log_created(self, slot: LoadedTopic, log: asyncio.Future[Log]) -> None:
        name = slot.name
        self.counts.end_creating(name.text, exists=self._has_log(name.text))
        try:
            topic = self._opener.created(name, log.result())
        except BaseException as failure:
            self._failed_to_open(slot, failure)
            if not isinstance(failure, GeoemuError):
                raise
            return
        if topic is None:
            self._spawn(self._open(slot))
        else:
            self._opened(slot, topic)

    async def _open(self, slot: LoadedTopic) -> None:
        try:
            topic = await self._open_or_create(slot)
        except BaseException as failure:
            self._failed_to_open(slot, failure)
            if not isinstance(failure, GeoemuError):
                raise
            return
        if topic is not None:
            self._opened(slot, topic)
            return
        self._change_state(slot, LoadState.ABSENT, "there is no such topic")
        self._drop_or_reopen(slot)

    def _failed_to_open(self, slot: LoadedTopic, failure: BaseException) -> None:
        self._change_state(slot, LoadState.ABSENT, str(failure))
        if isinstance(failure, StorageDamaged):
            self._damaged.add(slot.name.text, failure)
        slot.fail(failure, list(slot.waiters))
        self._drop_or_reopen(slot)

    def _opened(self, slot: LoadedTopic, topic: Topic) -> None:
        if self._closed:
            topic.close("the region is stopping")
            return
        slot.topic = self.serving[topic.full_name] = topic
        self._change_state(slot, LoadState.SERVING, "opened")
        self._opener.serve(topic)
        slot.serve(topic)

    async def _open_or_create(self, slot: LoadedTopic) -> Topic | None:
        """Try to open the topic until it exists or no request waits for it any more (D1)."""
        while True:
            modes = set(slot.waiters.values())
            creating = [mode for mode in modes if self._creates(slot.name, mode)]
            requests = list(slot.waiters.items())
            create = bool(creating)
            if create:
                self._rules.check_room(slot.name)
            topic = await self._open_and_count(slot.name, create)
            if topic is not None:
                return topic
            missing = ProtocolError(ServerError.TopicNotFound, f"Topic {slot.name} not found")
            slot.fail(missing, [waiter for waiter, mode in requests if mode not in creating])
            if not slot.waiters:
                return None

    async def _open_and_count(self, name: TopicName, create: bool) -> Topic | None:
        """Open a topic, which counts from now on if it may be created, so that concurrent requests find no room."""
        if not create:
            return await self._opener.open(name, create=False)
        full_name, topic = name.text, None
        self.counts.begin_creating(full_name)
        try:
            topic = await self._opener.open(name, create=True)
        finally:
            exists = topic is not None or (name.is_persistent and self._has_log(full_name))
            self.counts.end_creating(full_name, exists=exists)
        return topic

    def _creates(self, name: TopicName, mode: OpenMode) -> bool:
        """Whether a request of this mode creates a missing topic now."""
        if mode is OpenMode.EXISTING or mode is OpenMode.CREATE_BY_COMMAND:
            return mode is OpenMode.CREATE_BY_COMMAND
        if not self._rules.may_create(name):
            return False
        # A user may have deleted it since `check_not_deleted` (L6).
        return mode is OpenMode.CREATE or not self._rules.was_deleted(name)

    def _drop_or_reopen(self, slot: LoadedTopic) -> None:
        """Drop an unloaded slot, or open the topic again for requests that arrived meanwhile."""
        assert slot.state is LoadState.ABSENT
        slot.topic = None
        if slot.waiters and not self._closed:
            self._begin_opening(slot)
        elif self._slots.get(slot.name.text) is slot:
            del self._slots[slot.name.text]

    # Unloading.

    def failed(self, name: str, failure: BaseException, *, again: bool) -> None:
        """Close a loaded topic after a storage failure, because its state in memory may be wrong. With `again`, load it
        from the store again: replication must continue even if no client reconnects."""
        slot = self._slots.get(name)
        if slot is None or slot.state is not LoadState.SERVING or self._closed:
            return
        logger.error("storage of topic %s failed: %s", name, failure)
        self._begin_unloading(slot, "its storage failed")
        slot.delay_seconds = self.failed_stores.next_delay(name)
        self._spawn(self._finish_unloading(slot))
        if again:
            self._spawn(self.load_with_retries(name))

    async def unload(self, name: str, why: str, *, only_if: Callable[[Topic], bool] | None = None) -> None:
        """Write the pending changes of a loaded topic, then close it. `only_if` is checked after that write: the topic
        stays loaded if it returns False. StorageError when a write fails."""
        slot = self._slots.get(name)
        if slot is None or slot.state is not LoadState.SERVING:
            return
        topic = slot.topic
        assert topic is not None
        await self._opener.write_pending(topic)
        if slot.topic is not topic or slot.state is not LoadState.SERVING:
            return
        if only_if is None or only_if(topic):
            self._begin_unloading(slot, why)
            await _run_detached(self._spawn, self._finish_unloading(slot, orderly=True))

    async def delete(self, name: str, *, force: bool, for_good: bool = True) -> None:
        """Close a topic and remove it from the store. `for_good`: replication from other regions must not create it
        again. ProtocolError for a topic that does not exist, or that is in use unless `force` is set. StorageError."""
        slot = await self._acquire_slot(name)
        topic = slot.topic
        assert topic is not None
        if topic.is_used and not force:
            raise ProtocolError(ServerError.NotAllowedError, f"topic {name} has producers or consumers")
        self._begin_unloading(slot, "it is deleted")
        await _run_detached(self._spawn, self._finish_unloading(slot, delete=True, for_good=for_good))

    async def _acquire_slot(self, name: str) -> LoadedTopic:
        """Return the slot of a topic in state SERVING. Load the topic again if it was unloaded before this task
        resumed; ServiceNotReady after ACQUIRE_ATTEMPTS_MAX attempts. ProtocolError or StorageError."""
        for _ in range(ACQUIRE_ATTEMPTS_MAX):
            topic = await self.acquire(name, OpenMode.EXISTING)
            slot = self._slots.get(topic.full_name)
            if slot is not None and slot.topic is topic and slot.state is LoadState.SERVING:
                return slot
        raise ProtocolError(ServerError.ServiceNotReady, f"{name} is being loaded again")

    def _begin_unloading(self, slot: LoadedTopic, why: str) -> None:
        topic = slot.topic
        assert topic is not None
        self._change_state(slot, LoadState.LEAVING, why)
        del self.serving[topic.full_name]
        self._opener.send_away(topic)
        topic.close(why)

    async def _finish_unloading(
        self, slot: LoadedTopic, *, orderly: bool = False, delete: bool = False, for_good: bool = True
    ) -> None:
        topic = slot.topic
        assert topic is not None
        await topic.settled()
        await slot.wait_for_store()
        try:
            if delete:
                self._change_state(slot, LoadState.DELETING, "its pending writes are done")
                await self._opener.erase(topic.full_name, for_good=for_good)
            elif orderly and not await self._opener.forget_owing(topic):
                self._spawn(self.load_with_retries(topic.full_name))
        finally:
            if not slot.name.is_persistent or not self._has_log(topic.full_name):
                self.counts.note_existence(topic.full_name, exists=False)
            why = "it is gone" if delete else "its pending writes are done"
            self._change_state(slot, LoadState.ABSENT, why)
            self._drop_or_reopen(slot)

    # Pending work (D3), and idle topics.

    async def open_owing(self, names: list[str]) -> None:
        """Open topics that may have pending work, up to CONCURRENT_LOADS_MAX concurrently."""
        self.owing = dict.fromkeys(names)
        semaphore = asyncio.Semaphore(CONCURRENT_LOADS_MAX)

        async def load(name: str) -> None:
            try:
                async with semaphore:
                    await self.load_with_retries(name)
            finally:
                self.owing.pop(name, None)

        await asyncio.gather(*map(load, names))

    async def load_with_retries(self, name: str) -> None:
        """Load a topic; retry while its store fails. A ProtocolError (also: not found) or damaged state ends that."""
        delays = retry_delays()
        while not self._closed:
            try:
                await self.acquire(name, OpenMode.EXISTING)
                return
            except StorageDamaged:
                return  # already logged; requests read the store again after DAMAGED_SECONDS
            except StorageError as failure:
                logger.warning("cannot load topic %s yet: %s", name, failure)
            except ProtocolError as problem:
                logger.warning("topic %s is not loaded again: %s", name, problem)
                return
            await asyncio.sleep(next(delays))

    def is_unused_since(self, topic: Topic, loop_time: float) -> bool:
        """Whether a topic had no `acquire` after `loop_time` and has no client, replicator and pending work (D3)."""
        requested_at = self._slots[topic.full_name].requested_at
        return requested_at <= loop_time and not topic.is_used and not self._opener.owes(topic)

    def close(self) -> None:
        """Close the loaded topics, open no further ones, and fail waiting requests, because the region stops."""
        self._closed = True
        for topic in list(self.serving.values()):
            topic.close("the region is stopping")
        stopping = ProtocolError(ServerError.ServiceNotReady, "the region is stopping")
        for slot in list(self._slots.values()):
            slot.fail(stopping, list(slot.waiters))

    def _change_state(self, slot: LoadedTopic, state: LoadState, why: str) -> None:
        change = slot.change_state(state, why)
        for observer in self._observers:
            observer(change)


async def _run_detached(
    spawn: Callable[[Coroutine[Any, Any, Any]], None], work: Coroutine[Any, Any, None]
) -> None:
    """Run work even if the caller is cancelled. Unexpected errors and the region's end become StorageError."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            await work
        except GeoemuError as failure:
            if not done.done():
                done.set_exception(failure)
        except BaseException as failure:
            if not done.done():
                done.set_exception(
                    StorageError(f"the unload or deletion was interrupted: {failure!r}", definite=False)
                )
            raise
        else:
            if not done.done():
                done.set_result(None)

    spawn(run())
    await done
