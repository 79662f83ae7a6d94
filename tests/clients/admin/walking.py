"""Run every command of Java's pulsar-admin in one JVM and record the outcomes.

python -m tests.clients.admin.walking docs/PULSAR_ADMIN.md      # updates the tables of the page
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from emulator.client import Client
from tests.broker.admin.served import Served, served
from tests.clients.admin.commands import READY, TOPIC, Command, read_tree
from tests.clients.admin.refusals import why
from tests.clients.admin.resident import Resident, resident
from tests.clients.driving import java_program

HERE = Path(__file__).parent
BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"
REQUEST_SECONDS = "60"
"""Timeout of one request. By default a client that cannot read a response would wait for five minutes."""
WORKED, REFUSED = "works", "refused"
_REASON = re.compile(r"Reason: (.*)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a command."""

    command: str
    word: str
    reason: str


class Admin:
    """pulsar-admin in a running JVM."""

    def __init__(self, program: Resident) -> None:
        self._program = program

    def ask(self, *words: str) -> tuple[bool, str]:
        """Run a command. Return (whether it succeeded, its output)."""
        outcome, _, text = self._program.ask("\t".join(words)).partition("\t")
        return outcome == "ok", re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


@contextmanager
def pulsar_admin(us: Served) -> Iterator[Admin]:
    """Build and start the driver of pulsar-admin. Skip the test without Java, or without Maven to build it."""
    main = "org.apache.pulsar.admin.cli.AdminDriver"
    java = java_program("pulsar-admin", HERE / "pom.xml", HERE / "AdminDriver.java", main)
    urls = (f"http://127.0.0.1:{us.admin_port}/", f"pulsar://127.0.0.1:{us.service_port}")
    with resident(*java, *urls) as program:
        yield Admin(program)


def outcomes() -> list[Outcome]:
    """Run every command of pulsar-admin once against a new region."""
    with served() as us, pulsar_admin(us) as admin, tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "schema.json"
        schema.write_text('{"type": "STRING", "schema": "", "properties": {}}')
        make_ready(us)
        publish_some(us)
        done, tree = admin.ask("tree")
        assert done, tree
        (broker,) = us.get("/admin/v2/brokers")
        names = {"schema": str(schema), "broker": broker}
        return [_outcome(us, admin, one, names) for one in read_tree(tree)]


def make_ready(us: Served, rows: Iterable[tuple[str, str, bytes | None]] = READY) -> None:
    """Create the objects that commands require; existing ones stay unchanged."""
    for method, path, body in rows:
        reply = us.ask(method, path, body)
        assert reply.status in (200, 204, 409), (path, reply)


def publish_some(us: Served) -> None:
    async def publish() -> None:
        async with Client([f"pulsar://127.0.0.1:{us.service_port}"]) as client:
            producer = await client.producer(TOPIC)
            for number in range(20):
                await producer.send(b"%d" % number)

    asyncio.run(publish())


def _outcome(us: Served, admin: Admin, command: Command, names: Mapping[str, str]) -> Outcome:
    words = command.words(names)
    if command.path.endswith(" get-message-by-id"):
        ledger = str(us.get("/admin/v2/persistent/public/default/orders/lastMessageId")["ledgerId"])
        words = [*command.path.split(), TOPIC, "--ledgerId", ledger, "--entryId", "0"]
    done, text = admin.ask("--request-timeout", REQUEST_SECONDS, *words)
    if done:
        return Outcome(command.path, WORKED, "")
    found = _REASON.search(text)
    reason = found[1].strip() if found else (text.strip() or "no message").splitlines()[0]
    return Outcome(command.path, REFUSED, reason.replace(str(us.admin_port), "PORT").replace("|", "/")[:160])


def table(found: list[Outcome]) -> str:
    """Return Markdown tables of the rejected commands with reasons, and of the working ones by group."""
    ordered = sorted(found, key=lambda one: one.command)
    refused = [
        f"| `{one.command}` | {one.reason} | {why(one.command, one.reason) or ''} |"
        for one in ordered
        if one.word != WORKED
    ]
    names = [one.command.split(maxsplit=1) for one in ordered if one.word == WORKED]
    groups = [
        f"| `{group}` | {', '.join(f'`{verb}`' for _, verb in verbs)} |"
        for group, verbs in groupby(names, key=lambda one: one[0])
    ]
    head = ["| refused | error | why |", "|---|---|---|", *refused]
    return "\n".join([*head, "", "| group | commands that work |", "|---|---|", *groups])


def working(page: str) -> set[str]:
    """Return the commands that a page lists as working."""
    _, _, rows = page.partition("| commands that work |")
    return {
        f"{group} {verb}"
        for group, verbs in re.findall(r"^\| `([^`]+)` \| (.*) \|$", rows, re.MULTILINE)
        for verb in re.findall(r"`([^`]+)`", verbs)
    }


def main() -> None:
    page = Path(sys.argv[1])
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n\n{table(outcomes())}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
