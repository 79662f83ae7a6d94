"""The contents of a run directory, and the errors about missing files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spark_jobs.checks.check import Circumstances, circumstances_of
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.frames.summary import HistorySummary
from spark_jobs.sources.policies import Namespace
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.sample_run import SampleRun


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sample = SampleRun()
    sample.publish("us-east", 0, 1.0)
    return sample.write(tmp_path / "run")


def test_a_whole_folder(run: Path) -> None:
    folder = open_run_folder(run)
    assert folder.damages == ()
    assert folder.regions == ("us-east", "us-west", "eu-central")
    assert folder.clusters["us-west"] == "americas"
    assert [log.path for log in folder.logs] == [
        str(run / f"regions/{name}/log.sqlite") for name in folder.regions
    ]
    assert folder.namespaces == {"public/default": Namespace(("us-east", "us-west", "eu-central"), True)}
    assert folder.latency_ms_max == 20.0


def route(run: Path, source: str, target: str, *via: object) -> None:
    """Let topology.json route a link over regions."""
    raw = json.loads((run / "topology.json").read_text())
    (link,) = (link for link in raw["links"] if (link["source"], link["target"]) == (source, target))
    link["via"] = list(via)
    (run / "topology.json").write_text(json.dumps(raw))


def circumstances(run: Path, *facts: tuple[str, str, str | None]) -> Circumstances:
    """Return the circumstances of a run with these facts: operation, region, and detail of the link to us-west."""
    names = ("at_ms", "op", "region", "other_region", "error", "detail")
    lines = tuple(
        dict(zip(names, (0.0, op, region, "us-west", None, detail), strict=True))
        for op, region, detail in facts
    )
    history = HistorySummary(frozenset(), lines, (), 0.0, 0.0, 0.0)
    return circumstances_of(open_run_folder(run), history, (), read_at_ms=1000.0)


def test_a_cut_link_explains_what_is_missing_behind_it(run: Path) -> None:
    route(run, "us-east", "eu-central", "us-west")
    assert open_run_folder(run).routes == {
        ("us-east", "eu-central"): (("us-east", "us-west"), ("us-west", "eu-central"))
    }
    cut = ("cut", "us-east", "one way")
    assert circumstances(run, cut).cut == {("us-east", "us-west"), ("us-east", "eu-central")}
    assert circumstances(run, cut, ("heal", "us-east", "both ways")).cut == set()
    assert circumstances(run, ("cut", "eu-central", "one way")).cut == {("eu-central", "us-west")}


def test_a_slow_link_delays_the_links_that_are_routed_over_it(run: Path) -> None:
    slow = ("latency", "us-east", "100 ms both ways")
    assert circumstances(run, slow).read_at_ms == 1000 - 2 * 100
    route(run, "us-east", "eu-central", "us-west")
    assert circumstances(run, slow).read_at_ms == 1000 - 2 * (100 + 20)


@pytest.mark.parametrize("via", [3, None, ["us-west"], {"us-west": 1}])
def test_a_route_of_another_shape_is_damage(run: Path, via: object) -> None:
    route(run, "us-east", "eu-central", via)
    (damage,) = open_run_folder(run).damages
    assert "topology.json cannot be read" in damage.sentence


@pytest.mark.parametrize(
    ("gone", "sentence", "region"),
    [
        ("run.json", "run.json is missing", None),
        ("topology.json", "topology.json is missing", None),
        ("history", "has no history", None),
        ("regions/us-west", "the folder regions/us-west is missing", "us-west"),
        ("regions/us-west/region.json", "regions/us-west/region.json is missing", "us-west"),
    ],
)
def test_what_is_missing_is_named(run: Path, gone: str, sentence: str, region: str | None) -> None:
    path = run / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    (damage,) = open_run_folder(run).damages
    assert sentence in damage.sentence
    assert damage.region == region


@pytest.mark.parametrize("name", ["topology.json", "regions/us-west/region.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', '{"clusters": 3}', "[" * 200_000])
def test_unreadable_files_are_named(run: Path, name: str, text: str) -> None:
    (run / name).write_text(text)
    (damage,) = open_run_folder(run).damages
    assert f"{name} cannot be read" in damage.sentence


@pytest.mark.parametrize(
    "changed",
    [
        {"clusters": [{}]},
        {"clusters": [3]},
        {"clusters": [{"name": "americas", "regions": [{"log": {"backend": "sqlite"}}]}]},
        {"clusters": [{"name": "americas", "regions": [{"name": 3, "log": {"backend": "sqlite"}}]}]},
        {"clusters": [{"name": "americas", "regions": [{"name": "us-east", "log": "sqlite"}]}]},
        {"links": [{"source": "us-east", "target": "us-west"}]},
        {"links": [{"source": "us-east", "target": "us-west", "shape": {"latency_ms": "slow"}}]},
        {"links": ["us-east"]},
        {"namespaces": [{"name": "public/default"}]},
        {"namespaces": ["public/default"]},
    ],
)
def test_a_topology_of_another_shape_is_a_damage(run: Path, changed: dict[str, object]) -> None:
    topology = json.loads((run / "topology.json").read_text())
    (run / "topology.json").write_text(json.dumps({**topology, **changed}))
    folder = open_run_folder(run)
    (damage,) = folder.damages
    assert "topology.json cannot be read" in damage.sentence
    assert damage.region is None
    assert folder.regions == ("eu-central", "us-east", "us-west")


def test_an_absent_folder_is_an_empty_one(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "nowhere")
    assert folder.regions == ()
    assert folder.damages


def test_files_that_spark_would_pass_over_in_silence(run: Path) -> None:
    (run / "history" / "_hidden.jsonl").touch()
    (damage,) = open_run_folder(run).damages
    assert "_hidden.jsonl cannot be read under that name" in damage.sentence


def test_a_folder_with_the_name_of_a_history_is_a_damage(run: Path) -> None:
    (run / "history" / "billing-2.jsonl").mkdir()
    (damage,) = open_run_folder(run).damages
    assert damage.sentence == "history/billing-2.jsonl is not a file"


LONE = "\ud800"
"""A lone surrogate: JSON allows it, and neither UTF-8 nor Arrow does."""


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("regions/us-west/region.json", {"log": {"backend": LONE}}, "the lone surrogate"),
        (
            "regions/us-west/region.json",
            {"log": {"backend": "kafka", "bootstrap_servers": LONE, "options": {"topic_prefix": LONE}}},
            "the lone surrogate",
        ),
        ("regions/us-west/region.json", {"log": "sqlite"}, "string indices"),
        ("answers.json", [{"subscription": LONE, "of": "orders", "on": "invoices"}], "the lone surrogate"),
        ("answers.json", [{"subscription": "s", "of": "orders", "on": f"a/b/{LONE}"}], "the lone surrogate"),
    ],
)
def test_texts_that_cannot_be_encoded_are_damage(run: Path, name: str, content: object, reason: str) -> None:
    (run / name).write_text(json.dumps(content))
    (damage,) = open_run_folder(run).damages
    assert "cannot be read" in damage.sentence
    assert reason in damage.sentence
    assert evaluate_run(EmbeddedEngine(), run).verdict == "unknown"


@pytest.mark.parametrize("field", ["name", "regions"])
def test_a_namespace_that_cannot_be_encoded_is_damage(run: Path, field: str) -> None:
    topology = json.loads((run / "topology.json").read_text())
    topology["namespaces"][0][field] = LONE if field == "name" else ["us-east", LONE]
    (run / "topology.json").write_text(json.dumps(topology))
    (damage,) = open_run_folder(run).damages
    assert "topology.json cannot be read: a text has the lone surrogate" in damage.sentence
    assert evaluate_run(EmbeddedEngine(), run).verdict == "unknown"


def test_bytes_that_are_not_utf_8_are_damage(run: Path) -> None:
    (run / "regions" / "us-west" / "kafka_servers").write_bytes(b"\xff")
    (run / "regions" / "x\udcff").mkdir()
    folder = open_run_folder(run)
    assert folder.regions == ("us-east", "us-west", "eu-central")
    name, servers = folder.damages
    assert name.sentence == r"the folder regions/x\udcff cannot be read under that name"
    assert servers.sentence.startswith("regions/us-west/kafka_servers cannot be read")
    assert evaluate_run(EmbeddedEngine(), run).verdict == "unknown"


@pytest.mark.parametrize(
    "name",
    [
        "answers.json",
        "made_by.json",
        "regions/us-west/metadata.jsonl",
        "regions/us-west/region.json",
        "run.json",
        "topology.json",
    ],
)
def test_files_that_are_nested_too_deeply_are_unreadable(run: Path, name: str) -> None:
    (run / name).write_text("[" * 200_000 + "\n")
    is_unreadable = name != "run.json"  # its name of the run is compared with the heads of histories
    assert is_unreadable == bool(open_run_folder(run).damages)
    evaluate_run(EmbeddedEngine(), run)
