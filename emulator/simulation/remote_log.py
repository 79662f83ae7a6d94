"""A remote log, as on Kafka: it survives its region, and another owner may take it over.

    region      call ──────▶ ┐ held while the log is unreachable      ┌ ──────▶ response received
    remote log               └▶ rejected if fenced, else applied once ┘
                ◀─ delay drawn, or lost ─▶                     ◀─ delay drawn, or lost ─▶

Opening a store takes the log over, in two steps as on Kafka (docs/KAFKA.md, "Fencing"): first the keys, a little later
all logs. From then on the log rejects writes of an older owner (S6), including calls in flight. Appends of
the older owner between the two steps are stored, and the new owner reads them. The older owner detects the takeover at
its next write or within `OWNER_POLL_SECONDS`: all its pending writes fail as fenced, and `fenced` is done.

The call of a paused region is applied; the region receives the response when it resumes. The last call of a killed
region may be applied after the kill, until the restarted region has taken the log over.

`RemoteFaults` sets how often calls and responses are lost. A store repeats a call until it receives a response, and the
remote log applies it once, so a loss only costs time. If the store gives up, the outcome of the group is unknown
(`definite=False`), and later writes are certainly not stored (S5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from emulator.errors import StorageError, StorageFenced
from emulator.simulation.durable_media import DiskFaults, MediaWrite, Medium, Span
from emulator.simulation.store import SimulatedStore

OWNER_POLL_SECONDS = 2.0
"""Interval at which a store checks whether another owner has taken the log over."""
OPEN_SECONDS = 10.0
"""Time that a starting region waits for a response of the log."""
CLOSE_SECONDS = 5.0
"""Time that `close` waits until the log has stored the pending writes."""


@dataclass(frozen=True, slots=True)
class RemoteFaults(DiskFaults):
    """Faults of a remote log. By default it is reachable, and no response is lost."""

    lost_answer_probability: float = 0.0
    """Probability that an attempt of a call fails: either the call or its response is lost, each in half of the
    cases."""
    resend_seconds: float = 0.4
    """Time that a store waits for a response before it repeats the call."""
    gives_up_seconds: float | None = None
    """Time after which a store gives up a commit or read. None: never, like the store on Kafka."""
    takeover_seconds: Span = (0.0, 0.02)
    """Time between the two steps of a takeover."""

    def repaired(self) -> RemoteFaults:
        return replace(self, failure_probability=0.0, stall_probability=0.0, lost_answer_probability=0.0)


class Call:
    """A call to the remote log: repeated until a response arrives, and applied at most once."""

    def __init__(self, log: RemoteLog, seconds: float, do: Callable[[], Any]) -> None:
        self.done = False
        self.withdrawn = False
        """The caller no longer waits; the call is not repeated, and not applied if it has not arrived."""
        self.do = do
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._request_seconds = seconds * log.random.random()
        self._response_seconds = seconds - self._request_seconds
        self._result: Any = None
        self._in_flight = False
        self._repeat_timer: asyncio.TimerHandle | None = None
        self._send()

    def withdraw(self) -> None:
        """Stop waiting for the response and repeating the call. If the call was applied, it stays applied."""
        self.withdrawn = True
        if self._repeat_timer is not None:
            self._repeat_timer.cancel()

    # At the region.

    def _send(self) -> None:
        faults = self._log.faults
        self._repeat_timer = self._loop.call_later(
            self._request_seconds + self._response_seconds + faults.resend_seconds, self._send
        )
        if not self._in_flight:
            self._in_flight = True
            self._log.later(self._request_seconds, self._arrive)

    def _resolve(self) -> None:
        if not self.withdrawn and not self.outcome.done():
            self.withdraw()
            self.outcome.set_result(self._result)

    # In the network and at the remote log.

    def _arrive(self) -> None:
        if self.withdrawn:
            return
        log = self._log
        if not log.is_reachable:
            log.hold(self._arrive)
            return
        lost = log.draw_chance(log.faults.lost_answer_probability)
        if not self.done and not (lost and log.random.random() < 0.5):
            self.done = True
            self._result = self.do()
        if lost:
            self._in_flight = False
        else:
            log.later(self._response_seconds, self._deliver_response)

    def _deliver_response(self) -> None:
        if not self._log.is_reachable:
            self._log.hold(self._deliver_response)
        else:
            self._in_flight = False
            self._loop.call_soon(self._resolve)


class RemoteLog(Medium):
    """The remote log's content and owner. It has one owner at a time; stores of older owners may still be open."""

    faults: RemoteFaults

    def __init__(self, random: Random, faults: RemoteFaults, server: asyncio.AbstractEventLoop) -> None:
        super().__init__(random, faults)
        self.is_reachable = True
        self.stores: list[RemoteStore] = []
        """Open stores, oldest first."""
        self.key_owner = 0
        self.log_owner = 0
        """The owner of the logs; never newer than `key_owner`."""
        self._server = server
        """The loop that runs the remote log; no kill of a region affects it."""
        self._held: list[Callable[[], None]] = []

    async def open_store(self) -> RemoteStore:
        """Take the log over and open a store. Raises StorageError if the log does not respond, StorageFenced if a newer
        owner takes it over meanwhile."""
        owner: int = await self._step(self.acquire_keys)
        store = self.make_store(owner)
        await asyncio.sleep(self.draw_seconds(self.faults.takeover_seconds))
        refusal: StorageFenced | None = await self._step(lambda: self.acquire_logs(owner))
        if refusal is not None:
            raise refusal
        self.stores.append(store)
        store.poll_owner()
        return store

    def make_store(self, owner: int) -> RemoteStore:
        return RemoteStore(self, owner)

    async def _step(self, do: Callable[[], Any]) -> Any:
        call = Call(self, self.draw_commit_seconds(), do)
        try:
            return await asyncio.wait_for(call.outcome, OPEN_SECONDS)
        except TimeoutError:
            raise StorageError(f"the log does not answer within {OPEN_SECONDS:g} s", definite=True) from None
        finally:
            call.withdraw()

    # Faults.

    def make_unreachable(self) -> None:
        """Make the log unreachable: calls and responses are held until `make_reachable`."""
        self.is_reachable = False

    def make_reachable(self) -> None:
        self.is_reachable = True
        held, self._held = self._held, []
        for callback in held:
            self.later(0.0, callback)

    def repair(self) -> None:
        super().repair()
        self.make_reachable()

    def program_died(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the stores of the program that ran on this loop and was killed."""
        for store in [store for store in self.stores if store.loop is loop]:
            store.die()

    # Owners.

    def acquire_keys(self) -> int:
        self.key_owner = super().acquire_keys()
        self.on_event(f"owner {self.key_owner}")
        return self.key_owner

    def acquire_logs(self, owner: int) -> StorageFenced | None:
        """Give the logs to this owner. Return the error if a newer owner has taken them already."""
        if owner < self.log_owner:
            return newer_owner(owner)
        self.log_owner = owner
        super().acquire_logs(owner)
        self.on_event(f"logs of owner {owner}")
        return None

    def fence(self, write: MediaWrite, owner: int) -> StorageFenced | None:
        newest = self.key_owner if write.log is None else self.log_owner
        return newer_owner(owner) if owner < newest else None

    def fail(self, write: MediaWrite) -> StorageError:
        return StorageError("the remote log refuses it", definite=True)

    # Used by calls.

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        self._server.call_later(seconds, do)

    def hold(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the log is reachable again."""
        self._held.append(callback)


def newer_owner(owner: int) -> StorageFenced:
    return StorageFenced(f"owner {owner} was replaced by a newer one")


class RemoteStore(SimulatedStore):
    """A store on a remote log; implements `contract.Replaceable`, too. `RemoteLog.open_store` creates it."""

    medium: RemoteLog

    def __init__(self, medium: RemoteLog, owner: int) -> None:
        super().__init__(medium, owner)
        self.fenced: asyncio.Future[StorageFenced] = self.loop.create_future()
        self._call: Call | None = None
        """The call of the group that is being committed; None while there is none."""
        self._give_up_timer: asyncio.TimerHandle | None = None

    # Writing.

    def commit(self, group: list[MediaWrite]) -> None:
        self._call = Call(
            self.medium, self.medium.draw_commit_seconds(), lambda: self.medium.apply(group, self.owner)
        )
        self._call.outcome.add_done_callback(self._handle_outcomes)
        seconds = self.medium.faults.gives_up_seconds
        if seconds is not None:
            self._give_up_timer = self.loop.call_later(seconds, self._give_up)

    def _handle_outcomes(self, done: asyncio.Future[Any]) -> None:
        if self._call is None or self._call.outcome is not done:
            return  # The store ended, or gave up, in the meantime.
        self._end_call()
        outcomes = done.result()
        fenced = next((outcome for outcome in outcomes if isinstance(outcome, StorageFenced)), None)
        if fenced is None:
            self.group_committed(outcomes)
        else:
            self.resolve(outcomes)
            self._end_fenced(fenced)

    def _give_up(self) -> None:
        """Fail the group with an unknown outcome. The call is withdrawn, so it is not applied later."""
        assert self._call is not None
        if self._call.outcome.done():
            return
        self._call.withdraw()
        self._end_call()
        error = StorageError("the remote log did not answer", definite=False)
        self.group_committed([error] * len(self._committing))

    def _end_call(self) -> None:
        self._call = None
        if self._give_up_timer is not None:
            self._give_up_timer.cancel()
            self._give_up_timer = None

    # Ownership.

    def poll_owner(self) -> None:
        """Poll for a newer owner until the store ends. A store that writes detects it at once, an idle store only by
        polling."""
        if self.ended is None:
            call = Call(self.medium, self.medium.draw_commit_seconds(), lambda: self.medium.key_owner)
            call.outcome.add_done_callback(self._owner_polled)

    def _owner_polled(self, done: asyncio.Future[int]) -> None:
        if self.ended is not None:
            return
        if done.result() > self.owner:
            self._end_fenced(newer_owner(self.owner))
        else:
            self.loop.call_later(OWNER_POLL_SECONDS, self.poll_owner)

    def _end_fenced(self, fenced: StorageFenced) -> None:
        """Fail all pending writes and send no further calls, because a newer owner has the log."""
        self._stop(fenced)
        if not self.fenced.done():
            self.fenced.set_result(fenced)

    def _stop(self, error: StorageError) -> None:
        self.ended = error
        if self._call is not None:
            self._call.withdraw()
        self._end_call()
        if self in self.medium.stores:
            self.medium.stores.remove(self)
        for write in self.remove_pending():
            self._resolve_write(write, error)

    # Reading.

    async def wait_for_read(self) -> None:
        if self.medium.is_reachable:
            await super().wait_for_read()
            return
        call = Call(self.medium, 0.0, lambda: None)
        try:
            await asyncio.wait_for(call.outcome, self.medium.faults.gives_up_seconds)
        except TimeoutError:
            raise StorageError("the remote log cannot be read", definite=True) from None
        finally:
            call.withdraw()

    # The end.

    async def wait_for_last_write(self, last: asyncio.Future[Any]) -> None:
        done, _ = await asyncio.wait([last], timeout=CLOSE_SECONDS)
        if not done:
            self._stop(StorageError("the store was closed before the log took it", definite=False))
            last.exception()  # retrieved: no other code waits for it

    def release(self) -> None:
        self._stop(StorageError("the store is closed", definite=True))

    def die(self) -> None:
        """End the store, whose program was killed. Unsent writes are lost; a call in flight may arrive."""
        self.ended = StorageError("the store crashed", definite=True)
        self.medium.stores.remove(self)
        tail = self.remove_pending()
        if self._call is not None and self.medium.random.random() < 0.5:
            self._call.withdraw()
        self.medium.on_event(f"crash with {len(tail)} on the way")
