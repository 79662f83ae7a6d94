"""The compiled build (`make fast`): it behaves as the sources do, and is recognised as that of other sources.

The expensive tests compile a copy of this checkout, so that the other tests go on with the sources.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from emulator.compiled import LIBRARY, LIBRARY_END, MODULES, compiled_digest, problem_of_build, sources_digest
from scripts.compile import CannotCompile, check_tools

ROOT = Path(__file__).parent.parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
TRACES = """
import sys
from tests.swarm.runner import run_seed
import emulator.wire.frames
print(emulator.wire.frames.__file__.endswith(".so"), file=sys.stderr)
for kind, seed in (("failover", 1), ("failover", 2), ("swarm", 3), ("swarm", 7), ("transaction-key", 4)):
    outcome = run_seed(kind, seed)
    print(kind, seed, outcome.digest, outcome.violation)
"""
FAST_SUITES = (
    "tests/core",
    "tests/model",
    "tests/wire",
    "tests/storage",
    "tests/broker/connection",
    "tests/broker/subscription",
    "tests/simulation/test_determinism.py",
)
"""Suites in .ci/run: those of the compiled modules, and of the modules that call them for each message."""
ALL_SUITES = (
    "tests/core",
    "tests/model",
    "tests/wire",
    "tests/storage",
    "tests/broker",
    "tests/client",
    "tests/simulation",
)
"""Suites in .ci/long. Those of the swarm test mutants, which replace methods of the sources."""


def compile_program(*arguments: str | Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "compile.py", *arguments],
        env={**os.environ, "PATH": path or os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


def package_without_modules(folder: Path) -> Path:
    """Create a package with the sources that may be compiled, and nothing else."""
    package = folder / "emulator"
    for module in ("compiled.py", *MODULES):
        (package / module).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "emulator" / module, package / module)
    return package


def pretend_compiled(package: Path, digest: str) -> list[Path]:
    """Create files with the names of compiled modules."""
    made = [package / f"{LIBRARY}{digest}{LIBRARY_END}"]
    made += [(package / module).with_suffix(SUFFIX) for module in MODULES]
    for path in made:
        path.touch()
    return made


def run_in(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a checkout, with its modules."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def compiled_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, compiled. Without a compiler the test is skipped; in CI it fails."""
    try:
        check_tools()
    except CannotCompile as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
    copy = tmp_path_factory.mktemp("compiled") / "geoemu"
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    done = compile_program("build", copy)
    assert done.returncode == 0, done.stderr
    return copy


@pytest.mark.long
def test_a_seed_has_the_same_trace_in_both_builds(compiled_checkout: Path) -> None:
    compiled, pure = run_in(compiled_checkout, "-c", TRACES), run_in(ROOT, "-c", TRACES)
    assert compiled.stderr == "True\n"
    assert compiled.returncode == pure.returncode == 0, pure.stderr
    assert compiled.stdout == pure.stdout


@pytest.mark.long
def test_a_second_call_compiles_nothing(compiled_checkout: Path) -> None:
    done = compile_program("build", compiled_checkout, path="/nonexistent")
    assert (done.returncode, done.stderr) == (0, "")
    assert "are those of the present sources" in done.stdout


@pytest.mark.long
def test_suites_pass_in_the_compiled_build(compiled_checkout: Path) -> None:
    done = run_in(
        compiled_checkout, "-m", "pytest", "-q", "-m", "not real and not long and not slow", *FAST_SUITES
    )
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_all_suites_of_a_region_pass_in_the_compiled_build(compiled_checkout: Path) -> None:
    done = run_in(compiled_checkout, "-m", "pytest", "-q", "-m", "not real and not slow", *ALL_SUITES)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_seeds_of_all_workloads_pass_in_the_compiled_build(compiled_checkout: Path) -> None:
    done = run_in(compiled_checkout, "-m", "tests.swarm", "--seeds", "200")
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.long
def test_a_mutant_is_refused_in_the_compiled_build(compiled_checkout: Path) -> None:
    done = run_in(compiled_checkout, "-m", "tests.swarm", "--seeds", "1", "--without", "seek-ignored")
    assert done.returncode == 2
    assert "modules are compiled: `make slow` removes" in done.stderr


def test_modules_that_may_be_compiled_exist() -> None:
    assert [module for module in MODULES if not (ROOT / "emulator" / module).is_file()] == []
    assert sorted(MODULES) == list(MODULES)


def test_without_compiled_modules_nothing_is_to_be_done(tmp_path: Path) -> None:
    package = package_without_modules(tmp_path)
    assert compiled_digest(package) is None
    assert problem_of_build(package) is None


def test_a_build_of_other_sources_is_recognised(tmp_path: Path) -> None:
    package = package_without_modules(tmp_path)
    pretend_compiled(package, sources_digest(package))
    assert problem_of_build(package) is None
    with (package / MODULES[0]).open("a") as source:
        source.write("# changed\n")
    problem = problem_of_build(package)
    assert problem is not None
    assert "`make fast` compiles these, `make slow` removes" in problem


@pytest.mark.parametrize("module", ["emulator.broker", "emulator.cli"])
def test_no_program_starts_with_a_build_of_other_sources(tmp_path: Path, module: str) -> None:
    shutil.copytree(
        ROOT / "emulator", tmp_path / "emulator", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    (tmp_path / "emulator" / f"{LIBRARY}0123456789abcdef{LIBRARY_END}").touch()
    program = "import sys; from emulator.cli import main; main(['--help'])"
    arguments = ("-m", module) if module == "emulator.broker" else ("-c", program)
    done = run_in(tmp_path, *arguments)
    assert done.returncode == 2
    assert "not of its present sources" in done.stderr


def test_remove_leaves_sources_and_other_libraries(tmp_path: Path) -> None:
    package = package_without_modules(tmp_path)
    foreign = package / "core" / f"other{SUFFIX}"
    foreign.touch()
    compiled = pretend_compiled(package, "0123456789abcdef")
    done = compile_program("remove", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path for path in compiled if path.exists()] == []
    assert foreign.exists()
    assert all((package / module).exists() for module in MODULES)
    assert compile_program("remove", tmp_path).stdout == "compile: no module is compiled\n"


def test_a_missing_compiler_is_one_clear_error(tmp_path: Path) -> None:
    package_without_modules(tmp_path)
    done = compile_program("build", tmp_path, path="/nonexistent")
    assert done.returncode == 2
    assert "there is no C compiler" in done.stderr
    assert "sudo apt-get install gcc" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_compilation_that_fails_leaves_nothing(tmp_path: Path) -> None:
    package = package_without_modules(tmp_path)
    (package / MODULES[0]).write_text("def wrong(: pass\n")
    done = compile_program("build", tmp_path)
    assert done.returncode == 2
    assert "the compilation failed" in done.stderr
    assert list(package.rglob("*.so")) == []


@pytest.mark.parametrize("arguments", [(), ("rebuild",), ("build", "/nonexistent"), ("build", "a", "b")])
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = compile_program(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_make_fast_and_make_slow(compiled_checkout: Path) -> None:
    """The last test: without `setup`, which would install this checkout's packages again."""
    package = compiled_checkout / "emulator"
    for goal, printed in (
        ("slow", "are removed"),
        ("slow", "no module is compiled"),
        ("fast", f"{len(MODULES)} modules are"),
    ):
        done = subprocess.run(
            ["make", "-o", "setup", goal, f"PYTHON={sys.executable}"],
            cwd=compiled_checkout,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert printed in done.stdout
        assert (compiled_digest(package) is not None) == (goal == "fast")
