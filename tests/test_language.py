"""The text that users read uses the terms of the field and names the actor of each sentence.

`PHRASES` lists expressions that an outside reading found hard to understand, each with a replacement. To add one, add a
row. Keep the expressions narrow: ordinary English must not match (`test_ordinary_english_is_allowed`).
"""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from emulator.cli.verbs import app
from emulator.config.compatibility import SWITCHES
from emulator.model.reasons import REASON_ROWS
from spark_jobs.wording import HINTS

ROOT = Path(__file__).parents[1]
THIS = "tests/test_language.py"

PHRASES = {
    r"\b[Ww]ho(?:m|se)?ever\b": "name the actor: the client, any producer",
    r"\b(?:is|are|was|were|be|been|being) told\b": "receives, gets a response, is notified",
    r"\bso many\b(?! \w+ that\b)": "name the number: up to `max_unacked`",
    r"\b[Nn]obody\b": "no client, no region, no consumer",
    r"\b[Ss]omebody\b": "a client, another producer, a user",
    r"\b[Ss]omeone\b": "a client, another producer, a user",
    r"\b[Nn]o one\b(?!-| way\b)": "no client, no region, no consumer",
    r"\b[Aa]nyone who\b": "any client that",
    r"\bstand(?:s|ing)? (?:in|at|beside|on|behind) (?:the|a|an|its|it|that|this|what|every|each)\b": (
        "is stored at, follows, is in"
    ),
    r"\bwork(?:s|ed|ing)? (?:it |this |that |the verdict )?out\b": "compute, determine",
    r"\bjudg(?:e|es|ed|ing) (?:\S+ ){0,4}again\b": "verify again",
}
QUOTATION = re.compile(r"<!-- quotation -->.*?<!-- end of quotation -->", re.DOTALL)
"""Marks words of a proposal, which stay as they are."""


def dialect(text: str) -> Iterator[str]:
    """Each phrase of `PHRASES` in a text, with its line and what to write instead."""
    text = QUOTATION.sub(lambda quoted: "\n" * quoted[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in PHRASES.items():
            if found := re.search(pattern, line):
                yield f"{number}: {found[0]!r} (write: {instead}): {line.strip()[:120]}"


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return sorted(listed.stdout.split())


def help_texts() -> Iterator[tuple[str, str]]:
    """Each verb with its help, and the help of its parameters."""
    yield from _help_of("geoemu", typer.main.get_command(app))


def _help_of(name: str, command: click.Command) -> Iterator[tuple[str, str]]:
    texts = [command.help or "", command.epilog or ""]
    texts += [getattr(parameter, "help", None) or "" for parameter in command.params]
    yield name, "\n".join(texts)
    if isinstance(command, click.Group):
        for verb, one in command.commands.items():
            yield from _help_of(f"{name} {verb}", one)


CATALOGUES = {
    "the reasons": lambda: [str(row) for row in REASON_ROWS],
    "the hints": lambda: [str(hint) for hint in HINTS.values()],
    "the switches": lambda: [
        part for one in SWITCHES.values() for part in (one.what, one.upstream, one.here, one.why)
    ],
}
READ_BY_USERS = tracked(
    "*.md",
    "*.yaml",
    "emulator/schemas/*.json",
    "spark_jobs/templates/*",
    "Makefile",
    "compose/*",
)


@pytest.mark.parametrize("name", READ_BY_USERS)
def test_a_file_that_users_read_uses_the_terms_of_the_field(name: str) -> None:
    assert not list(dialect((ROOT / name).read_text()))


def comments_of(source: str) -> str:
    """The comments and docstrings of a module; every other line is empty."""
    lines = source.splitlines()
    kept = [""] * len(lines)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_text = token.type == tokenize.STRING and token.line.lstrip().startswith(token.string[:3])
        if token.type == tokenize.COMMENT or (is_text and token.string.startswith('"""')):
            kept[token.start[0] - 1 : token.end[0]] = token.string.splitlines()
    return "\n".join(kept)


PRODUCT = tracked("emulator/*.py", "geoemu/*.py", "spark_jobs/*.py")
OTHERS = [name for name in tracked("tests/*.py", "benchmarks/*.py", "scripts/*.py") if name != THIS]


@pytest.mark.parametrize("name", [name for name in PRODUCT if not name.endswith("_pb2.py")])
def test_a_module_of_the_product_uses_the_terms_of_the_field(name: str) -> None:
    assert not list(dialect((ROOT / name).read_text()))


@pytest.mark.parametrize("name", OTHERS)
def test_the_comments_of_tests_use_the_terms_of_the_field(name: str) -> None:
    assert not list(dialect(comments_of((ROOT / name).read_text())))


@pytest.mark.parametrize(("verb", "text"), [pytest.param(*each, id=each[0]) for each in help_texts()])
def test_the_help_of_a_verb_uses_the_terms_of_the_field(verb: str, text: str) -> None:
    assert text.strip(), verb
    assert not list(dialect(text))


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_a_catalogue_of_sentences_uses_the_terms_of_the_field(catalogue: str) -> None:
    texts = CATALOGUES[catalogue]()
    assert len(texts) >= 8
    assert not list(dialect("\n".join(texts)))


@pytest.mark.parametrize(
    "name",
    [name for name in READ_BY_USERS if name.endswith(".md") and "/reference/" not in name],
)
def test_a_page_does_not_repeat_words_at_once(name: str) -> None:
    """Edits that are applied twice leave such text behind: "the time the time"."""
    assert not re.findall(r"\b([a-z]{3,}(?: [a-z]+){0,3}) \1\b", (ROOT / name).read_text())


def test_ordinary_english_is_allowed() -> None:
    ordinary = (
        "a no one-way link",
        "so long as the link is up",
        "so many messages that the queue is full",
        "whatever the order, whichever comes first",
        "a standalone cluster; the default stands for all regions",
        "the workout of a warm-up",
    )
    assert not [line for text in ordinary for line in dialect(text)]


def test_each_phrase_is_found() -> None:
    examples = (
        "Whoever asks first has the topic.",
        "The client is told of it.",
        "It waits for so many messages.",
        "Nobody reads it.",
        "Somebody else has it.",
        "Someone published.",
        "No one reads it.",
        "Anyone who subscribes",
        "The entry stands in the log.",
        "Spark works the verdict out.",
        "The engine judges the run again.",
    )
    assert all(list(dialect(example)) for example in examples), [
        example for example in examples if not list(dialect(example))
    ]
