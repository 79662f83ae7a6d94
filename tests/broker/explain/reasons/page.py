"""The table of reasons of docs/components/explain.md: `python -m tests.broker.explain.reasons.page` writes it there."""

from __future__ import annotations

import re
from pathlib import Path

from emulator.model.reasons import Question, rows_of

PAGE = Path(__file__).parents[4] / "docs" / "components" / "explain.md"
BEGIN, END = "<!-- table of reasons -->", "<!-- end of the table -->"


def table() -> str:
    return "\n".join(part for question in Question for part in _part(question))


def _part(question: Question) -> list[str]:
    head = [
        "",
        f"**{question.value[0].upper()}{question.value[1:]}**",
        "",
        "| reason | condition |",
        "|---|---|",
    ]
    return [
        *head,
        *(f"| `{row.code}` {_cell(row.text)} | {_cell(row.when)} |" for row in rows_of(question)),
    ]


def _cell(text: str) -> str:
    """A detail in braces becomes a word in italics."""
    return re.sub(r"\{(\w+)[^}]*\}", r"*\1*", text).replace("|", "\\|")


def main() -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
