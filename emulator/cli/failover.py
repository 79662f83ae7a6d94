"""`geoemu failover-plan` and `geoemu translate`: what a fail-over to another region would do, and positions there."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import Iterator
from typing import Annotated

import typer

from emulator.cli.application import app, open_run_of
from emulator.cli.completion import complete_region, complete_subscription, complete_topic
from emulator.cli.curl import piped
from emulator.cli.options import AsCurl, AsJson, RunDir
from emulator.model.failover_plans import FailoverPlan, PartitionedPlan, Translation

COLUMNS = 80
LABEL = 15

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="A topic, or one partition of a topic. A plan is also made of all partitions of a topic.",
        autocompletion=complete_topic,
    ),
]
Subscription = Annotated[
    str,
    typer.Argument(
        metavar="SUBSCRIPTION", help="A subscription of the topic.", autocompletion=complete_subscription
    ),
]
Source = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="REGION",
        help="Region of the position, or that consumers leave.",
        autocompletion=complete_region,
    ),
]
Target = Annotated[
    str, typer.Option("--to", metavar="REGION", help="The other region.", autocompletion=complete_region)
]


@app.command(
    "failover-plan", epilog="Example: geoemu failover-plan orders billing --from us-east --to eu-central"
)
def failover_plan(
    topic: Topic,
    subscription: Subscription,
    source: Source,
    target: Target,
    as_json: AsJson = False,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Show what happens if the consumers of a subscription continue in another region now: messages that
    are redelivered, skipped or missing there, and what to wait for."""
    from emulator.runtimes.operator import record_by
    from emulator.scenarios.failover_plans import plan_in_run, plan_requests, record_plan

    run = open_run_of(run_dir)
    if as_curl:
        tls = run.topology.security.of_clients
        for requests in asyncio.run(plan_requests(run, topic, subscription, source, target)):
            print(piped(*requests, tls))
        return
    plan = asyncio.run(plan_in_run(run, topic, subscription, source, target))
    asyncio.run(record_by(run, lambda history: record_plan(history, plan)))
    print(json.dumps(plan.to_json(), indent=1) if as_json else plan_as_text(plan))


def plan_as_text(plan: FailoverPlan) -> str:
    """Return a plan in lines of at most 80 columns. Of a partitioned topic: the sums, and a line for each partition."""
    if not isinstance(plan, PartitionedPlan):
        return _plan_as_text(plan)
    whole = _plan_as_text(plan, has_position=False)
    rows = (
        line
        for number, one in enumerate(plan.partitions)
        for line in entry(
            f"partition {number}", f"{_redelivered(one)}; resumes at {one.resume or 'the next message'}"
        )
    )
    return "\n".join([whole, *rows])


def _plan_as_text(plan: FailoverPlan, *, has_position: bool = True) -> str:
    resume = plan.resume or f"the next message that {plan.target} stores"
    return "\n".join(
        [
            f"{plan.subscription} of {_short(plan.topic)}: {plan.source} -> {plan.target}",
            *entry("redelivered", _redelivered(plan)),
            *(entry("resumes at", resume) if has_position else ()),
            *entry("skipped", _count(plan.skipped_messages, plan.source)),
            *(line for one in plan.skipped_because for line in entry("", one)),
            *entry("missing", _missing(plan)),
            *entry("knowledge", _age(plan)),
            *(line for one in plan.why for line in entry("because", one)),
            *(line for one in plan.wait_for for line in entry("waits for", one)),
        ]
    )


def entry(label: str, text: str) -> Iterator[str]:
    """Yield a labelled text in lines of at most 80 columns."""
    yield from textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=f"  {label:<{LABEL - 2}}",
        subsequent_indent=" " * LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _short(topic: str) -> str:
    return topic.removeprefix("persistent://").removeprefix("public/default/")


def _redelivered(plan: FailoverPlan) -> str:
    number = f"{plan.redelivered_messages:,} messages"
    if not plan.complete:
        return f"at least {number}; no bound is known"
    bound = "" if plan.exact else "at most "
    if plan.oldest_redelivered_age_ms is None:
        return f"{bound}{number}"
    return f"{bound}{number}; the oldest was published {_seconds(plan.oldest_redelivered_age_ms)} ago"


def _count(messages: int | None, source: str) -> str:
    return f"unknown: {source} does not respond" if messages is None else f"{messages:,} messages"


def _missing(plan: FailoverPlan) -> str:
    if plan.missing_messages is None:
        return _count(None, plan.source)
    return f"{plan.missing_messages:,} messages, not stored in {plan.target} yet"


def _age(plan: FailoverPlan) -> str:
    if plan.information_age_ms is None:
        return f"none: {plan.target} received no position of the subscription from {plan.source}"
    if not plan.information_age_ms:
        return f"present: {plan.source} contributed to the plan"
    return f"{_seconds(plan.information_age_ms)} old: the newest position that {plan.source} sent"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s"


Position = Annotated[
    str, typer.Argument(metavar="POSITION", help="Position in the log of --from, ledger:entry.")
]


@app.command("translate", epilog="Example: geoemu translate orders 1:17 --from us-east --to eu-central")
def translate(
    topic: Topic,
    position: Position,
    source: Source,
    target: Target,
    as_json: AsJson = False,
    run_dir: RunDir = None,
) -> None:
    """Show the position of an entry of one region's log in another region: exact if it is stored there,
    otherwise bounds."""
    from emulator.scenarios.translations import translate_in_run

    found = asyncio.run(translate_in_run(open_run_of(run_dir), topic, position, source, target))
    print(json.dumps(found.to_json(), indent=1) if as_json else translation_as_text(found))


def translation_as_text(found: Translation) -> str:
    """Return a translation in lines of at most 80 columns."""
    lines = [
        f"{_short(found.topic)}: position {found.position} of {found.source}, translated to {found.target}"
    ]
    if found.exact is not None:
        lines += entry("exact", found.exact)
    else:
        lines += entry("after", found.after or "unknown")
        lines += entry("up to", found.upto or "unknown")
    return "\n".join([*lines, *entry("origin", found.origin or "unknown"), *entry("by", found.basis)])
