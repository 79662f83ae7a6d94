"""A rejected request raises the error of its response, which says whether the operation certainly did not happen."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client.connection import resolve
from emulator.client.types import ClientError, ExpiredTransaction
from emulator.errors import EXPIRED_TRANSACTION, ServerError
from emulator.wire.commands.connections import Error, Success
from emulator.wire.commands.consumers import AckResponse
from emulator.wire.commands.producers import GetOrCreateSchemaResponse
from emulator.wire.commands.spec import Command
from emulator.wire.commands.transactions import EndTransactionResponse

NOT_STORED = ServerError.PersistenceError


@pytest.mark.parametrize(
    ("response", "definite"),
    [
        (Error(7, ServerError.TopicNotFound, "no such topic"), True),
        (Error(7, NOT_STORED, "the disk is full"), True),
        (AckResponse(1, 7, ServerError.UnknownError, "closing"), False),
        (GetOrCreateSchemaResponse(7, ServerError.IncompatibleSchema, "other type"), False),
        (EndTransactionResponse(7, 0, 1, ServerError.TransactionConflict, "was aborted"), True),
        (EndTransactionResponse(7, 0, 1, NOT_STORED, "the disk is full"), False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_error_response_names_code_and_message(response: Command, definite: bool) -> None:
    error = await rejected_with(response)
    reported = (getattr(response, "error", None), getattr(response, "message", None))
    assert (error.code, str(error), error.definite) == (*reported, definite)


async def test_an_expired_transaction_has_an_error_of_its_own() -> None:
    expired = EndTransactionResponse(7, 0, 1, ServerError.NotAllowedError, f"{EXPIRED_TRANSACTION} (0,1)")
    assert isinstance(await rejected_with(expired), ExpiredTransaction)


async def test_a_success_is_the_result() -> None:
    future = new_future()
    resolve(future, Success(7))
    assert await future == Success(7)


async def rejected_with(response: Command) -> ClientError:
    future = new_future()
    resolve(future, response)
    with pytest.raises(ClientError) as rejection:
        await future
    return rejection.value


def new_future() -> asyncio.Future[Command]:
    return asyncio.get_running_loop().create_future()
