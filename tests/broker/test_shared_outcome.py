"""A shared outcome reaches each of its callers, whatever the others do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.broker.shared_outcome import SharedOutcome
from emulator.errors import StorageError

FAILURE = StorageError("of a test", definite=True)


async def wait_for(outcome: SharedOutcome) -> None:
    await outcome


async def test_a_caller_that_is_cancelled_leaves_the_outcome_to_the_others() -> None:
    outcome, called = SharedOutcome(), list[Any]()
    outcome.add_done_callback(called.append)
    first, second = asyncio.create_task(wait_for(outcome)), asyncio.create_task(wait_for(outcome))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    outcome.fail(FAILURE)
    with pytest.raises(StorageError):
        await second
    assert called == [outcome]
    outcome.add_done_callback(called.append)
    assert called == [outcome, outcome]


async def test_a_callback_that_fails_is_reported_and_the_others_are_called() -> None:
    outcome, called, reported = SharedOutcome(), list[Any](), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    failure = ValueError("of a test")

    def failing(_: SharedOutcome) -> None:
        raise failure

    outcome.add_done_callback(failing)
    outcome.add_done_callback(called.append)
    outcome.succeed()
    assert called == [outcome]
    assert reported == [failure]


@pytest.mark.parametrize("failure", [None, FAILURE])
async def test_an_outcome_follows_a_write(failure: StorageError | None) -> None:
    outcome, write = SharedOutcome(), asyncio.get_running_loop().create_future()
    outcome.follow(write)
    if failure is None:
        write.set_result(7)
    else:
        write.set_exception(failure)
    await asyncio.wait([outcome.future()])
    assert outcome.exception() is failure


async def test_an_outcome_that_is_done_completes_new_callers_at_once() -> None:
    await SharedOutcome(is_done=True)
    assert SharedOutcome(is_done=True).future().done()
