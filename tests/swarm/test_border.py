"""The product does not import the swarm: `tests` is not in the wheel, and import-linter does not check it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported(path: Path) -> set[str]:
    """Return the top-level names of all imported modules, including imports under TYPE_CHECKING."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def test_no_module_of_the_product_imports_a_test() -> None:
    modules = [
        path for package in ("emulator", "geoemu", "spark_jobs") for path in (ROOT / package).rglob("*.py")
    ]
    assert len(modules) > 300
    assert [str(path) for path in modules if "tests" in imported(path)] == []
