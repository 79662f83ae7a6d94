"""`bin/pulsar-admin` of the image for Testcontainers, on a standalone broker and with wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.broker.standalone.admin_commands import COMMANDS
from emulator.broker.standalone.admin_program import main, parse_command
from tests.broker.standalone.test_program import Standalone

Run = Callable[[str], str]
TYPED = """
brokers healthcheck
clusters list
clusters get standalone
tenants create acme
tenants create small --allowed-clusters standalone --admin-roles a,b
tenants list
tenants get small
namespaces create acme/shop
namespaces create acme/local --clusters standalone --bundles 4
namespaces list acme
namespaces set-clusters acme/shop --clusters standalone
namespaces get-clusters acme/shop
namespaces policies acme/shop
topics create persistent://acme/shop/orders
topics create orders
topics create-partitioned-topic acme/shop/parts -p 3
topics update-partitioned-topic acme/shop/parts --partitions 4
topics get-partitioned-topic-metadata acme/shop/parts
topics partitioned-stats acme/shop/parts
topics list acme/shop
topics list-partitioned-topics acme/shop
namespaces topics acme/shop
topics create-subscription acme/shop/orders -s billing
topics create-subscription acme/shop/orders --subscription audit --messageId earliest --replicated
topics subscriptions acme/shop/orders
topics stats acme/shop/orders
topics stats-internal acme/shop/orders
topics last-message-id acme/shop/orders
topics skip-all acme/shop/orders -s billing
topics unsubscribe acme/shop/orders -s billing --force
topics unload acme/shop/orders
topics compact acme/shop/orders
topics terminate acme/shop/orders
schemas delete acme/shop/orders
topics delete acme/shop/orders --force
topics delete-partitioned-topic acme/shop/parts
namespaces delete acme/shop -f
namespaces delete acme/local
tenants delete acme
"""


@pytest.fixture
def pulsar_admin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    broker = Standalone(tmp_path)
    broker.start()
    monkeypatch.setenv("PULSAR_HOME", str(tmp_path))

    def run(line: str, code: int = 0) -> str:
        outcome = main(line.split())
        printed = capsys.readouterr()
        assert outcome == code, printed.err
        return printed.out if code == 0 else printed.err

    yield run  # type: ignore[misc]
    assert broker.stop() == 0


@pytest.mark.real
def test_every_command_is_a_request_that_a_region_answers(pulsar_admin: Run) -> None:
    said = {line: pulsar_admin(line) for line in TYPED.strip().splitlines()}
    assert {" ".join(line.split()[:2]) for line in said} == COMMANDS.keys() - {"schemas get"}
    assert said["brokers healthcheck"] == "ok\n"
    assert said["tenants list"].split() == ["acme", "public", "pulsar", "small"]
    assert json.loads(said["tenants get small"])["adminRoles"] == ["a", "b"]
    assert said["topics list-partitioned-topics acme/shop"] == "persistent://acme/shop/parts\n"
    assert json.loads(said["topics get-partitioned-topic-metadata acme/shop/parts"])["partitions"] == 4
    assert sorted(said["topics subscriptions acme/shop/orders"].split()) == ["audit", "billing"]
    stats = json.loads(said["topics stats acme/shop/orders"])
    assert stats["subscriptions"]["audit"]["isReplicated"] is True


@pytest.mark.real
def test_a_refusal_of_the_region_is_shown_with_its_reason(pulsar_admin: Callable[[str, int], str]) -> None:
    assert "topics stats: HTTP 404: " in pulsar_admin("topics stats acme/shop/orders", 1)
    assert "HTTP 409: " in pulsar_admin("tenants create public", 1)
    assert "schemas get: HTTP 404: " in pulsar_admin("schemas get orders", 1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "pulsar-admin without a command: this image has brokers healthcheck, "),
        ("topics", "this image has"),
        ("topics lst a/b", "do you mean topics list?"),
        ("functions create --jar a.jar", "pulsar-admin functions: there are no functions and no connectors"),
        ("sinks list", "there are no functions and no connectors"),
        ("topics list", "the following arguments are required: NAMESPACE"),
        ("topics list public", "'public' is no namespace: write TENANT/NAMESPACE"),
        ("topics list a/b/c", "'a/b/c' is no namespace"),
        ("topics create ftp://a/b/c", "'ftp://a/b/c' is no topic"),
        ("topics create a/b", "'a/b' is no topic"),
        ("topics create-partitioned-topic orders", "required: -p/--partitions"),
        ("topics create-partitioned-topic orders -p many", "invalid int value: 'many'"),
        ("topics create-subscription orders -s a -m 5", "'5' is not latest, earliest or LEDGER:ENTRY"),
        ("topics stats orders --get-precise-backlog", "unrecognized arguments: --get-precise-backlog"),
        ("tenants create a/b", "'a/b' is no tenant"),
        ("--admin-url", "a URL such as http://localhost:8080 is missing"),
        ("--auth-plugin", "the name of a class or token or basic is missing"),
        ("--auth-plugin token --auth-params", "parameters such as token:… are missing"),
        ("--admin-url nonsense topics list a/b", "a URL such as"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.count("\n") == 1


def test_no_response_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--admin-url", "http://127.0.0.1:1", "topics", "list", "public/default"]) == 1
    assert "no response of http://127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize("topic", ["orders", "a/b/c d", "a/b/c/d?x=1#y", "a/b/../../../geoemu"])
def test_a_name_stays_one_part_of_the_path(topic: str) -> None:
    _, command, options = parse_command(["topics", "stats", topic])
    target = command.request(options).target
    assert target.count("/") == 7
    assert target.isprintable()
    assert not {" ", "?", "#"} & set(target)
