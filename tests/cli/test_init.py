"""`geoemu init`: a topology by questions, by defaults, and from the admin API of a running region."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from emulator.cli import init as init_module
from emulator.cli.init import _draft
from emulator.cli.verbs import app
from emulator.config.loading import load_topology
from emulator.errors import ConfigurationError, Refused
from tests.cli.test_runs import typed
from tests.runtimes.fixtures import end_all, write_topology


def init(*words: object) -> str:
    result = CliRunner().invoke(app, ["init", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def answering(*answers: str) -> Any:
    remaining = iter(answers)
    return lambda text, default: next(remaining, default)


def test_the_defaults_are_a_valid_topology(tmp_path: Path) -> None:
    output = init("--yes", "-o", tmp_path)
    topology = load_topology(tmp_path / "topology.yaml")
    assert topology.region_names == ("us-east", "us-west", "eu-central")
    assert [one.name for one in topology.clusters] == ["us", "eu"]
    assert topology.namespaces[0].deduplication
    assert f"`geoemu up -f {tmp_path}/topology.yaml` starts it" in output


def test_the_answers_decide(tmp_path: Path) -> None:
    answers = ("north, south,,north", "one", "one", "12.5", "shop/orders")
    draft = _draft(answering(*answers))
    draft.write(tmp_path)
    topology = load_topology(tmp_path / "topology.yaml")
    assert {one.name: [r.name for r in one.regions] for one in topology.clusters} == {
        "one": ["north", "south"]
    }
    assert topology.link("north", "south").latency_ms == 12.5
    assert (topology.tenants, topology.namespaces[0].name) == (("shop",), "shop/orders")


@pytest.mark.parametrize(
    "answers",
    [
        ("",),
        ("a b",),
        ("us-east", "../../up"),
        ("us-east", "us", "-1"),
        ("us-east", "us", "nan"),
        ("us-east", "us", "inf"),
        ("us-east", "us", "soon"),
        ("us-east", "us", "1", "noslash"),
        ("us-east", "us", "1", "a/b/c"),
        ("us-east, us-east-2", "x" * 300, "y"),
    ],
    ids=str,
)
def test_answers_that_are_no_topology_write_nothing(tmp_path: Path, answers: tuple[str, ...]) -> None:
    with pytest.raises((ConfigurationError, Refused, typer.BadParameter)):
        _draft(answering(*answers)).write(tmp_path / "new")
    assert not list(tmp_path.rglob("*.yaml"))


def test_questions_are_asked_on_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal, as in CI, the defaults are written instead of waiting for input."""
    monkeypatch.setattr(init_module.typer, "prompt", lambda *_, **__: pytest.fail("a question was asked"))
    init("-o", tmp_path)
    assert (tmp_path / "topology.yaml").exists()


def test_existing_files_are_never_changed(tmp_path: Path) -> None:
    write_topology(tmp_path)
    before = (tmp_path / "topology.yaml").read_text()
    with pytest.raises(Refused, match="exists: choose another folder"):
        init("--yes", "-o", tmp_path)
    assert (tmp_path / "topology.yaml").read_text() == before
    assert not (tmp_path / "clusters" / "us.yaml").exists()


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(Refused, match="cannot be written to /proc"):
        init("--yes", "-o", "/proc/init")


class Pulsar(BaseHTTPRequestHandler):
    """Answers as the admin API of a Pulsar, from `answers`: target -> JSON value, or text."""

    answers: dict[str, Any] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        value = self.answers.get(self.path.removeprefix("/admin/v2/"))
        body = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(404 if value is None else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def pulsar(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the admin URL of a Pulsar with two clusters."""
    answers = {
        "clusters": ["global", "us", "eu"],
        "tenants": ["public", "pulsar"],
        "namespaces/public": ["public/default", "public/local"],
        "namespaces/public/default": {
            "replication_clusters": ["eu", "us", "gone"],
            "deduplicationEnabled": True,
            "retention_policies": {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1},
            "message_ttl_in_seconds": 30,
            "a_policy_of_a_later_version": {"x": 1},
        },
        "namespaces/public/local": {"replication_clusters": ["us"], "retention_policies": None},
    }
    monkeypatch.setattr(Pulsar, "answers", answers)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pulsar)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_topology_of_a_pulsar_is_imported(pulsar: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["init", "--from", pulsar, "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.stderr == "public/default is replicated to 'gone', which is no cluster there: left out\n"
    topology = load_topology(tmp_path / "topology.yaml")
    assert topology.region_names == ("us", "eu")
    assert topology.tenants == ("public",)
    default, local = topology.namespaces
    assert (default.regions, default.deduplication, default.message_ttl_seconds) == (("us", "eu"), True, 30)
    assert (default.retention_minutes, default.retention_megabytes) == (60, -1)
    assert (local.name, local.regions) == ("public/local", ("us",))


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        ("clusters", None, "did not return clusters"),
        ("clusters", [], "has no cluster"),
        ("clusters", ["global"], "has no cluster"),
        ("clusters", {"us": 1}, "no list of clusters"),
        ("clusters", ["us", 1], "no list of clusters"),
        ("clusters", "<html>", "no JSON: is it an admin API"),
        ("clusters", ["../../etc/passwd"], "etc/passwd"),
        ("clusters", ["us\0"], "us"),
        ("namespaces/public", ["public/default", "../x"], "did not return namespaces/../x"),
        ("namespaces/public/default", [1], "no policies of namespace public/default"),
        (
            "namespaces/public/default",
            {"retention_policies": {"retentionTimeInMinutes": -7}},
            "retention_minutes",
        ),
    ],
)
def test_responses_that_are_no_topology_are_refused_and_write_nothing(
    pulsar: str, tmp_path: Path, target: str, value: Any, message: str
) -> None:
    Pulsar.answers[target] = value
    with pytest.raises((Refused, ConfigurationError), match=message):
        init("--from", pulsar, "-o", tmp_path)
    assert not list(tmp_path.rglob("*.yaml"))


@pytest.mark.parametrize(
    "url", ["", "localhost", "https://pulsar:8443", "http://host", "http://h:99999", "ftp://h:1"]
)
def test_a_url_of_no_admin_api_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is no URL of an admin API"):
        init("--from", url, "-o", tmp_path)


def test_a_pulsar_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="does not respond"):
        init("--from", "http://127.0.0.1:1", "-o", tmp_path)


@pytest.mark.real
@pytest.mark.long
def test_the_topology_of_a_region_is_imported(tmp_path: Path) -> None:
    more = (
        "  public/kept: {regions: [us-east, eu-central], deduplication: true, retention_minutes: 60, "
        "retention_megabytes: 5, message_ttl_seconds: 30}\n"
    )
    topology = write_topology(tmp_path)
    text = topology.read_text().replace("namespaces: {public/default: {regions: all}}\n", "")
    topology.write_text(f"{text}namespaces:\n  public/default: {{regions: all}}\n{more}")
    try:
        typed(tmp_path, "up", "--detach")
        url = json.loads(typed(tmp_path, "env", "eu-central", "--format", "json"))["PULSAR_ADMIN_URL"]
        typed(tmp_path, "init", "--from", url, "-o", "imported")
    finally:
        for run in (tmp_path / ".geoemu").glob("runs/*"):
            end_all(run)
    before, after = load_topology(topology), load_topology(tmp_path / "imported" / "topology.yaml")
    assert set(after.region_names) == set(before.region_names)
    assert after.tenants == before.tenants
    found = {one.name: one for one in after.namespaces}
    assert set(found) == {"public/default", "public/kept"}
    for one in before.namespaces:
        assert set(found[one.name].regions) == set(one.regions)
        assert found[one.name].deduplication == one.deduplication
        assert found[one.name].retention_minutes == one.retention_minutes
        assert found[one.name].retention_megabytes == one.retention_megabytes
        assert found[one.name].message_ttl_seconds == one.message_ttl_seconds
