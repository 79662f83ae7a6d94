"""Every command that a page tells its readers to type works: it is run here as they would, or by the test that
`documented_sessions` names, or there is a reason why no test can run it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

from emulator.cli.verbs import app
from emulator.runtimes.compose.command import compose_command
from tests.runtimes.containers import need_containers

from .documented_commands import ROOT, SHELLS, Block, blocks_of, documented_pages
from .documented_sessions import ELSEWHERE, REASONS, SESSIONS, Session
from .drills import end_runs

BLOCKS = [block for page in documented_pages() for block in blocks_of(page)]
ACTIVATION = "source .venv/bin/activate"
SESSION_SECONDS = 3000
PREAMBLE = """set -euo pipefail
trap 'echo "FAILED: $BASH_COMMAND" >&2' ERR
url() { (eval "$(geoemu env "$1")" && echo "$GEOEMU_SERVICE_URL"); }
"""
COPIED = {"topology.yaml", "clusters"}
"""What a reader may change; the rest of the checkout is linked."""
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def rules_for(block: Block, command: str) -> list[tuple[str, str]]:
    """Return the rules of ELSEWHERE and REASONS that apply to a command."""
    return [
        (page, pattern)
        for page, pattern in (*ELSEWHERE, *REASONS)
        if page == block.page and fnmatchcase(command, pattern)
    ]


def sessions_of(block: Block) -> list[Session]:
    return [session for session in SESSIONS if (block.page, block.heading) in session.blocks]


def test_every_command_is_run_or_has_a_reason() -> None:
    unknown = [
        f"{block.page}: {command}"
        for block in BLOCKS
        for command in block.commands
        if command != ACTIVATION and not rules_for(block, command) and not sessions_of(block)
    ]
    assert not unknown, "add them to a session, or to ELSEWHERE or REASONS"


def test_every_rule_and_every_session_still_applies() -> None:
    used = {rule for block in BLOCKS for command in block.commands for rule in rules_for(block, command)}
    assert {*ELSEWHERE, *REASONS} <= used
    places = {(block.page, block.heading) for block in BLOCKS if block.commands}
    assert {place for session in SESSIONS for place in session.blocks} <= places


@pytest.mark.parametrize("named", sorted(set(ELSEWHERE.values())))
def test_what_runs_a_command_elsewhere_exists(named: str) -> None:
    file, _, content = named.partition("::")
    wanted = f"def {content}(" if content.startswith("test_") else content
    assert wanted in (ROOT / file).read_text()


def test_every_block_names_its_language_and_those_that_are_typed_are_shells() -> None:
    assert not [f"{block.page}: {block.text[:60]}" for block in BLOCKS if not block.language]
    typed = re.compile(r"^(\$ )?(geoemu|make|docker|python|pytest) ", re.MULTILINE)
    others = [block for block in BLOCKS if block.language not in SHELLS and typed.search(block.text)]
    assert not others


def inline_commands() -> Iterator[tuple[str, str]]:
    """Yield (page, command) of each command of ours within the text of a page, such as `geoemu cut A B --one-way`. A
    decision record also names alternatives that were rejected."""
    for page in documented_pages():
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"^\*\*Rejected alternatives\.\*\*.*$", "", text, flags=re.MULTILINE)
        for span in re.findall(r"`(geoemu [^`]+)`", text):
            yield str(page.relative_to(ROOT)), span


@cache
def the_command() -> TyperCommand | TyperGroup:
    return typer.main.get_command(app)


def verb_of(words: list[str]) -> tuple[TyperCommand | TyperGroup, list[str]] | None:
    """Return the command that words name, and the words after it; None: there is no such verb."""
    command = the_command()
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return None
        command, words = command.commands[words[0]], words[1:]
    return command, words


def problem_of(text: str) -> str:
    """Return what is wrong with a command of ours: an unknown verb or option; empty if nothing is."""
    words = text.replace("…", " ").split()[1:]
    if not words or not re.fullmatch(r"[a-z-]+", words[0]):
        return ""
    found = verb_of(words)
    if found is None:
        return f"no verb {' '.join(words[:2])}"
    command, rest = found
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    typed = rest[: rest.index("--")] if "--" in rest else rest
    unknown = [name for name in OPTION.findall(" ".join(typed)) if name not in known | {"--help", "-h"}]
    return f"no option {unknown[0]}" if unknown else ""


def test_verbs_and_options_within_the_text_of_pages_exist() -> None:
    shown = [(page, text) for page, text in inline_commands()]
    typed = [(block.page, one) for block in BLOCKS for one in block.commands if one.startswith("geoemu ")]
    assert len(shown) > 100
    wrong = [f"{page}: {text}: {why}" for page, text in (*shown, *typed) if (why := problem_of(text))]
    assert not wrong


@pytest.mark.parametrize(
    "wrong", ["geoemu explode us-east", "geoemu cut a b --both-ways", "geoemu region delete a"]
)
def test_a_wrong_verb_or_option_is_noticed(wrong: str) -> None:
    assert problem_of(wrong)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A folder like a reader's checkout."""
    for path in ROOT.iterdir():
        if path.name in COPIED:
            (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / path.name)
        elif path.name not in (".git", ".geoemu", ".venv"):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    yield tmp_path
    end_runs(tmp_path)


def script_of(session: Session) -> str:
    """Return the program that types the blocks of a session."""
    lines = [PREAMBLE, ACTIVATION, session.before]
    if session.images and compose_command()[0] != "docker":
        # Where Docker has no plug-in for Compose, a program of its own is installed.
        compose = shlex.join(compose_command())
        lines.insert(
            1,
            f'docker() {{ if [ "$1" = compose ]; then shift; {compose} "$@"; else command docker "$@"; fi; }}',
        )
    for block in BLOCKS:
        if session not in sessions_of(block):
            continue
        if block.language == "python":
            lines.append(_replaced(f"python - <<EOF | tee said\n{block.text}EOF", session))
        lines += [
            _line_of(command, session)
            for command in block.commands
            if command != ACTIVATION and not rules_for(block, command)
        ]
    return "\n".join([*lines, session.after])


def _line_of(command: str, session: Session) -> str:
    line = _replaced(recipe_of(command) if command.startswith("make ") else command, session)
    code = next((code for start, code in session.fails.items() if command.startswith(start)), None)
    return line if code is None else f'status=0; {line} || status=$?; [ "$status" = {code} ]'


def _replaced(text: str, session: Session) -> str:
    for placeholder, value in session.replaced.items():
        text = text.replace(placeholder, value)
    return text


def recipe_of(command: str) -> str:
    """Return what `make` runs after the set-up, which these tests have behind them."""
    words = shlex.split(command)
    shown = subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = shown.replace("\\\n", " ").splitlines()
    return "; ".join(line for line in lines if "scripts/setup" not in line and line.strip())


@pytest.mark.real
@pytest.mark.parametrize("session", [pytest.param(one, id=one.name, marks=one.marks) for one in SESSIONS])
def test_the_commands_of_a_page_work_as_typed(session: Session, checkout: Path) -> None:
    if session.images:
        need_containers(*session.images)
    done = subprocess.run(
        ["bash", "-c", script_of(session)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input="y\n",
        capture_output=True,
        text=True,
        timeout=SESSION_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    assert all(text in done.stdout for text in session.expects), done.stdout
