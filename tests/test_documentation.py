"""Pages and docstrings describe the code that is there: the map of packages, the stored keys, the fields."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import emulator
from emulator.model.stored_keys import KINDS, PATHS

ROOT = Path(__file__).parent.parent
BEGINNING = 105
"""Two rows that share this many characters are two versions of one row. Paths of the admin API share fewer."""


def pages() -> list[Path]:
    return [*(ROOT / "docs").rglob("*.md"), ROOT / "CHANGELOG.md", ROOT / "README.md"]


def written_pages() -> list[Path]:
    """Those that no program generates."""
    return [page for page in pages() if page.parent.name != "reference"]


def repeated_rows(page: str) -> list[str]:
    """Return the beginning of each row or item of a list that a page has twice: what a careless merge leaves."""
    beginnings = [line[:BEGINNING] for line in page.splitlines() if line.startswith(("| ", "* ", "- "))]
    return [line for line, times in Counter(beginnings).items() if times > 1 and len(line) == BEGINNING]


def bodies(source: str) -> Iterator[list[ast.stmt]]:
    tree = ast.parse(source)
    yield tree.body
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.body


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def stray_docstrings(source: str) -> list[int]:
    """Return the lines of strings that follow neither a head nor a field: what an insertion or deletion leaves."""
    return [
        node.lineno
        for body in bodies(source)
        for before, node in itertools.pairwise(body)
        if _is_text(node) and not isinstance(before, ast.Assign | ast.AnnAssign)
    ]


def first_use(page: str) -> str:
    """Return the blocks of a page up to the first one that types `geoemu`; empty when none does."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    until = next((at for at, block in enumerate(blocks) if re.search(r"^(\$ )?geoemu ", block, re.M)), None)
    return "" if until is None else "".join(blocks[: until + 1])


def test_a_page_that_types_geoemu_activates_its_environment_first() -> None:
    """Or `geoemu` is a command that the shell does not find."""
    used = {page: first_use(page.read_text()) for page in [*pages(), ROOT / "examples" / "README.md"]}
    typing = {page.name: blocks for page, blocks in used.items() if blocks}
    assert {"README.md", "OWN_SERVICE.md", "CONTAINERS.md"} <= typing.keys()
    assert not [name for name, blocks in typing.items() if "source .venv/bin/activate" not in blocks]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead to no file of the repository, or to no heading of it."""
    found = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        to = page.parent / target if target else page
        if "://" in target or target.startswith("mailto:"):
            continue
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            found.append(f"{target}#{anchor}")
    return found


def unknown_decisions(text: str) -> list[str]:
    known = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")}
    return [number for number in re.findall(r"\bdecision (\d+)\b", text) if number.zfill(4) not in known]


def test_each_link_of_a_page_leads_somewhere() -> None:
    assert not {str(page.relative_to(ROOT)): broken for page in pages() if (broken := broken_links(page))}


def test_each_decision_that_code_or_a_page_names_exists() -> None:
    code = [
        path
        for folder in ("emulator", "geoemu", "spark_jobs", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    found = {str(path.relative_to(ROOT)): unknown_decisions(path.read_text()) for path in [*pages(), *code]}
    assert not {path: numbers for path, numbers in found.items() if numbers}


def test_each_page_that_code_names_exists() -> None:
    code = [
        path
        for folder in ("emulator", "geoemu", "spark_jobs", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = {(path, name) for path in code for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())}
    assert not {(str(path.relative_to(ROOT)), name) for path, name in named if not (ROOT / name).exists()}


def test_no_page_repeats_a_row_of_a_table_or_an_item_of_a_list() -> None:
    found = {
        str(page.relative_to(ROOT)): twice
        for page in written_pages()
        if (twice := repeated_rows(page.read_text()))
    }
    assert not found


def test_a_docstring_follows_a_field() -> None:
    files = [
        path
        for folder in ("emulator", "geoemu", "spark_jobs", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    found = {
        str(path.relative_to(ROOT)): lines for path in files if (lines := stray_docstrings(path.read_text()))
    }
    assert not found


def test_a_docstring_that_follows_another_one_is_noticed() -> None:
    assert stray_docstrings('"""Head."""\nA = 1\n"""Of A."""\n"""Of a field that went."""\n') == [4]


def test_the_map_of_packages_names_every_module() -> None:
    folder = Path(emulator.__file__).parent
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    head = emulator.__doc__ or ""
    listed = set(
        re.findall(r"\w+", "\n".join(re.split(r" {3,}", line.strip())[0] for line in head.splitlines()))
    )
    missing = {name for name in names if not name.startswith(("__", "topology_")) and name not in listed}
    assert not missing


def test_the_page_of_the_architecture_names_every_kind_of_stored_key_and_no_other() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    tables = page.partition("Keys of a region's store:")[2].partition("## ")[0]
    store, _, configuration = tables.partition("Keys of a configuration store")
    assert _kinds(store) == set(KINDS)
    assert _kinds(configuration) == set(PATHS)


def _kinds(table: str) -> set[str]:
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return set(re.findall(r"`([\w-]+)/", " ".join(first)))
