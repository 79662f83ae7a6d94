"""Which master a session uses, and that no other module names one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from spark_jobs.engines.masters import ChosenMaster, MasterRefused, choose_master
from spark_jobs.engines.session import _settings

ROOT = Path(__file__).parents[3]
SUBMITTED = {"PYSPARK_GATEWAY_PORT": "4040"}
RULE = ROOT / "spark_jobs" / "engines" / "masters.py"


def test_only_the_rule_names_a_master() -> None:
    """No other module has a default master, and only the session sets the chosen one."""
    named, set_in = set(), set()
    for package in ("spark_jobs", "emulator", "geoemu"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and str(node.value).startswith(
                    ("local[", "local-cluster[")
                ):
                    named.add(file)
                if isinstance(node, ast.Attribute | ast.Call) and _sets_a_master(node):
                    set_in.add(file)
    assert named == {RULE}
    assert set_in == {ROOT / "spark_jobs" / "engines" / "session.py"}


def _sets_a_master(node: ast.AST) -> bool:
    """Return whether a node is `….master(…)`, `….setMaster(…)` or a call with the setting `spark.master`."""
    if not isinstance(node, ast.Call):
        return False
    named = isinstance(node.func, ast.Attribute) and node.func.attr in ("master", "setMaster")
    first = node.args[0] if node.args else None
    sets = isinstance(node.func, ast.Attribute) and node.func.attr in ("config", "set")
    return named or (sets and isinstance(first, ast.Constant) and first.value == "spark.master")


def test_only_a_plain_program_has_the_default() -> None:
    assert choose_master(None, {}) == ChosenMaster("local[2]", is_set_here=True)
    assert choose_master("yarn", {}) == ChosenMaster("yarn", is_set_here=True)


def test_spark_submit_chooses() -> None:
    chosen = choose_master(None, {**SUBMITTED, "SPARK_MASTER": "yarn", "MASTER": "yarn"})
    assert chosen == ChosenMaster(None, is_set_here=False)
    assert chosen.is_submitted
    assert not chosen.is_local
    with pytest.raises(
        MasterRefused, match="--master yarn contradicts spark-submit, which has chosen a master"
    ):
        choose_master("yarn", SUBMITTED)


def test_a_submitted_session_leaves_java_and_its_page_to_spark_submit(tmp_path: Path) -> None:
    submitted = _settings(ChosenMaster(None, is_set_here=False), tmp_path, "-Xss4m")
    assert not [key for key in submitted if key.startswith(("spark.driver", "spark.ui", "spark.local"))]
    ours = _settings(ChosenMaster("yarn", is_set_here=True), tmp_path, "-Xss4m")
    assert {"spark.ui.enabled", "spark.driver.extraJavaOptions"} <= ours.keys() - submitted.keys()
    assert all("master" not in key for key in ours)


@pytest.mark.parametrize(
    "arguments",
    [
        "--master spark://a:1 pyspark-shell",
        "--master=spark://a:1 pyspark-shell",
        "--conf spark.master=spark://a:1 pyspark-shell",
        "--name 'a b' -c spark.master=spark://a:1 pyspark-shell",
        "--conf spark.master=yarn --master spark://a:1 pyspark-shell",
        "--conf=spark.master=spark://a:1 pyspark-shell",
    ],
)
def test_spark_s_own_arguments_choose(arguments: str) -> None:
    chosen = choose_master(None, {"PYSPARK_SUBMIT_ARGS": arguments, "MASTER": "yarn"})
    assert chosen == ChosenMaster("spark://a:1", is_set_here=False)


@pytest.mark.parametrize(
    "line", ["spark.master spark://a:1", "spark.master=spark://a:1", "  spark.master\t: spark://a:1  "]
)
def test_spark_s_own_file_chooses(tmp_path: Path, line: str) -> None:
    text = f"# spark.master yarn\nspark.masterful yarn\n{line}\nspark.executor.memory 1g\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    environment = {"SPARK_CONF_DIR": str(tmp_path), "MASTER": "yarn"}
    assert choose_master(None, environment) == ChosenMaster("spark://a:1", is_set_here=False)
    assert choose_master("local[1]", environment) == ChosenMaster("local[1]", is_set_here=True)


def test_variables_choose(tmp_path: Path) -> None:
    assert choose_master(None, {"MASTER": "yarn"}) == ChosenMaster("yarn", is_set_here=False)
    for_all = {"SPARK_MASTER": "spark://a:1", "MASTER": "yarn", "SPARK_CONF_DIR": str(tmp_path)}
    assert choose_master(None, for_all) == ChosenMaster("spark://a:1", is_set_here=True)
    assert choose_master(None, {"PYSPARK_SUBMIT_ARGS": "--conf x=y pyspark-shell"}).url == "local[2]"


def test_arguments_that_cannot_be_read_are_one_sentence() -> None:
    with pytest.raises(
        MasterRefused, match=r"PYSPARK_SUBMIT_ARGS=--conf 'x cannot be read: No closing quotation"
    ):
        choose_master(None, {"PYSPARK_SUBMIT_ARGS": "--conf 'x"})


def test_the_working_directory_has_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master yarn\n")
    monkeypatch.chdir(tmp_path)
    assert choose_master(None, {}).url == "local[2]"
    assert choose_master(None, {"SPARK_HOME": str(tmp_path)}).url == "yarn"
