"""A recording whose history cannot be written never breaks the recorded program."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.errors import Refused
from emulator.recording.context import actor_name
from emulator.recording.journal import ActorJournal, end_journals, open_journal
from emulator.run.directory import RunDirectory

CALLS = ["write", "close", "write close"]


def fail_once(monkeypatch: pytest.MonkeyPatch, calls: str) -> None:
    """Let the next `os.write`, `os.close` or both fail, as on a full disk."""
    for name in calls.split():
        real = getattr(os, name)

        def fail(*arguments: object, name: str = name, real: Callable[..., object] = real) -> None:
            monkeypatch.setattr(os, name, real)
            if name == "close":
                real(*arguments)
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize(
    "end",
    [lambda journal, run_dir: journal.release(), lambda journal, run_dir: end_journals(run_dir)],
    ids=["last client closed", "run ended"],
)
def test_an_end_that_cannot_be_written_is_reported_and_not_raised(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    end: Callable[[ActorJournal, Path], None],
    calls: str,
) -> None:
    journal = open_journal(RunDirectory(tmp_path), "shop", named=True)
    fail_once(monkeypatch, calls)
    end(journal, tmp_path)
    error = capsys.readouterr().err
    assert "geoemu: the history of shop could not be closed: [Errno 28] No space left on device" in error
    assert "`geoemu seal shop`" in error
    last = json.loads((tmp_path / "history" / "shop.jsonl").read_text().splitlines()[-1])
    assert last["op"] == ("end" if calls == "close" else "head")
    assert open_journal(RunDirectory(tmp_path), "shop", named=True).is_open  # the file is not locked any more
    end_journals(tmp_path)


@pytest.mark.parametrize("calls", CALLS)
def test_an_omission_that_cannot_be_written_is_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: str
) -> None:
    journal = open_journal(RunDirectory(tmp_path), "shop", named=True)
    fail_once(monkeypatch, calls)
    journal.stop_recording("its client switched to pulsar://127.0.0.1:1 by itself")
    assert not journal.is_open
    journal.release()


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/app/billing.py", "billing"),
        ("/lib/site-packages/pytest/__main__.py", "pytest"),
        ("/app/_private.v2.py", "private.v2"),
        ("-c", "c"),
        ("", "program"),
    ],
)
def test_an_actor_has_the_name_of_its_file_or_package(
    monkeypatch: pytest.MonkeyPatch, program: str, name: str
) -> None:
    monkeypatch.delenv("GEOEMU_ACTOR", raising=False)
    monkeypatch.setattr(sys, "argv", [program])
    assert actor_name() == name


@pytest.mark.parametrize("actor", ["", "_shop", ".shop", "a/b", "\udc80"])
def test_an_actor_whose_history_a_verdict_could_not_read_is_refused(tmp_path: Path, actor: str) -> None:
    with pytest.raises(Refused, match=r"a name has no '/' and does not start with '_' or '\.'"):
        open_journal(RunDirectory(tmp_path), actor, named=True)
    assert not (tmp_path / "history").exists()
