"""`geoemu transactions`: the commands of the proposal that Pulsar's own tool lacks, against a region that serves."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from emulator.broker.transactions.coordinator import RunningCoordinator
from emulator.cli.verbs import app
from emulator.cli.verbs import tools as verbs
from emulator.core.transactions.keys import NO_EPOCH
from emulator.errors import GeoemuError
from emulator.runtimes.contract import RegionStatus
from tests.broker.admin.served import Served, served


class RunOfOneRegion:
    """A run as these commands see it."""

    def __init__(self, at: Served) -> None:
        self.topology = SimpleNamespace(region=lambda name: name)
        self._url = f"http://127.0.0.1:{at.admin_port}"

    async def status(self) -> Any:
        status = RegionStatus("us", "test", "running", "", self._url, None)
        return SimpleNamespace(regions=[status])


class Connection:
    cut = False
    is_open = True

    def close_at_once(self) -> None:
        self.cut = True


def typed(verb: str, *words: str) -> Result:
    result = CliRunner().invoke(
        app, ["transactions", f"{verb}-transaction-key" + "s" * (verb == "list"), "us", *words]
    )
    assert isinstance(result.exception, SystemExit | GeoemuError | None), result.exception
    return result


def test_the_verbs_list_show_and_delete_the_keys_of_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as at:
        monkeypatch.setattr(verbs, "open_run_of", lambda run_dir: RunOfOneRegion(at))
        connection, key = Connection(), "a/b %"

        async def connect() -> None:
            coordinators = at.region.coordinators
            coordinator: RunningCoordinator = coordinators.get(coordinators.coordinator_of(key))
            await coordinator.keys.connect("", key, NO_EPOCH, "p", connection)

        assert typed("list").output == ""
        asyncio.run_coroutine_threadsafe(connect(), at.loop).result(10)
        assert typed("list").output == "a/b %\n"
        shown = json.loads(typed("get", key).output)
        assert (shown["epoch"], shown["transactionId"], shown["connected"]) == (0, None, True)
        assert typed("delete", key).exit_code == 0
        assert connection.cut
        assert typed("list").output == ""
        gone = typed("get", key)
        assert gone.exit_code != 0
        assert "there is no transaction key 'a/b %'" in gone.output + str(gone.exception)
