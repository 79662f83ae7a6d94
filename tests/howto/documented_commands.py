"""The commands that the pages for users tell them to type: the shell blocks of README, docs/ and examples/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELLS = frozenset({"sh", "bash", "console"})
"""Languages of blocks that are typed. In `console`, commands follow `$ ` and the rest is their output."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    """Path below the repository."""
    heading: str
    language: str
    text: str

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands of a shell block, each on one line unless it has a here-document, without comments."""
        return tuple(_commands_in(self.text, self.language)) if self.language in SHELLS else ()


def documented_pages() -> list[Path]:
    """Return all pages but the generated ones of docs/reference."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    written = [page for page in pages if page.parent != ROOT / "docs" / "reference"]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(written)]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    name = str(page.relative_to(ROOT))
    return [Block(name, _heading_above(text[: one.start()]), one[1], one[2]) for one in found]


def _heading_above(text: str) -> str:
    return re.findall(r"^#+ (.*)$", text, re.MULTILINE)[-1]


def _commands_in(text: str, language: str) -> Iterator[str]:
    """Yield the commands of a block. A line may have several, and a command several lines."""
    lines = iter(text.splitlines())
    for line in lines:
        if language == "console":
            if not line.startswith("$ "):
                continue
            line = line.removeprefix("$ ")
        while line.endswith("\\"):
            line = f"{line[:-1].rstrip()} {next(lines).lstrip()}"
        if end := re.search(r"<<'(\w+)'", line):
            for content in lines:
                line += f"\n{content}"
                if content == end[1]:
                    break
            yield line
        else:
            yield from _without_comment(line)


def _without_comment(line: str) -> list[str]:
    bare = re.sub(r"(^|\s)#\s.*$", "", line)
    return [one.strip() for one in bare.split("; ") if one.strip()] if "(" not in bare else [bare.strip()]
