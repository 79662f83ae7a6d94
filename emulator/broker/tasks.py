"""Tasks that end with their owner: a region, or the connection of a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class TaskGroup:
    """The tasks of an owner that is not a coroutine, such as an asyncio protocol. Unlike in asyncio's TaskGroup, a
    failed task does not cancel the others."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], Callable[[], None] | None] = {}
        self._closed = False

    def start(self, work: Coroutine[Any, Any, Any], done: Callable[[], None] | None = None) -> None:
        """Run `work`, unless the group is closed. Call `done` when it ends, even if it is cancelled or fails; at once
        in a closed group. An exception is a bug and is logged."""
        if self._closed:
            work.close()
            if done is not None:
                done()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = done
        task.add_done_callback(self._task_done)

    def close(self) -> None:
        """Cancel the running tasks, and start no further ones."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        done = self._tasks.pop(task)
        if done is not None:
            done()
        if not task.cancelled() and task.exception() is not None:
            logger.error("a task failed", exc_info=task.exception())
