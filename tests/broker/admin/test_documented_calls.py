"""What Pulsar's documentation shows of its REST API, page by page, as a person would type it with curl.

The calls are those of the pages on clusters, tenants, brokers, namespaces, topics, permissions, schemas and
transactions, and the tutorial's; names are changed to what is there. They are made one after the other.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.admin.served import Reply, Served, served

JSON = "-H 'Content-Type: application/json'"
RATE = (
    '{"dispatchThrottlingRateInMsg": 1000, "dispatchThrottlingRateInByte": 1048576, "ratePeriodInSecond": 1}'
)
PERSISTENCE = (
    '{"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2, '
    '"managedLedgerMaxMarkDeleteRate": 0}'
)
CALLS = Path(__file__).with_name("documented-calls.txt")
"""A page begins with `## `; JSON, RATE and PERSISTENCE stand for the constants above."""
PAGES = {
    page.partition("\n")[0]: page.partition("\n")[2].strip().splitlines()
    for page in CALLS.read_text().split("## ")[1:]
}


@pytest.fixture(scope="module")
def us() -> Iterator[Served]:
    with served() as region:
        yield region


def made(us: Served, command: str) -> Reply:
    """Send a request as curl does: without a type of its own, a body would be a form's."""
    words = shlex.split(command)
    method, target, body, headers = "GET", "", None, {}
    arguments = iter(words[1:])
    for word in arguments:
        if word == "-X":
            method = next(arguments)
        elif word == "-H":
            name, _, value = next(arguments).partition(":")
            headers[name] = value.strip()
        elif word == "-d":
            body = next(arguments).encode()
        else:
            target = f"/{word}"
    return us.ask(method, target, body, headers)


@pytest.mark.parametrize("page", PAGES)
def test_calls_of_pulsar_s_documentation_have_the_documented_status(us: Served, page: str) -> None:
    found, expected = [], []
    for line in PAGES[page]:
        command, _, status = line.rpartition(" => ")
        whole = re.sub("PERSISTENCE|RATE", lambda word: {"RATE": RATE}.get(word[0], PERSISTENCE), command)
        reply = made(us, whole.replace("JSON", JSON))
        expected.append(f"{command} => {status}")
        found.append(
            f"{command} => {reply.status}"
            + ("" if reply.status == int(status) else f" {reply.body[:200].decode()}")
        )
    assert found == expected


def test_a_form_body_is_refused_and_the_reason_names_the_required_type(us: Served) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    reply = us.ask("PUT", "/admin/v2/persistent/public/default/form/partitions", b"3", form)
    assert (reply.status, "application/json" in reply.json()["reason"]) == (415, True)
