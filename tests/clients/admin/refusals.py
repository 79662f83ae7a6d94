"""Commands of pulsar-admin that must end with an error, with the error and the reason why it is correct."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple


class Refusal(NamedTuple):
    """A row of the table of expected errors. `commands` matches the whole command, `error` the beginning of its
    error."""

    commands: str
    error: str
    why: str


_PLAIN_BROKER: Final = "A region has no function worker, as a Pulsar broker without one."
REFUSALS: Final[Sequence[Refusal]] = (
    Refusal(
        r"functions (create|update|.*)|sources .*|sinks .*|functions-worker .*",
        r".*Pulsar Function Worker is not enabled|HTTP 503 Service Unavailable",
        _PLAIN_BROKER,
    ),
    Refusal(
        r"(functions|sources|sinks) localrun",
        r".*",
        "The tool starts a program of a Pulsar installation and sends no request.",
    ),
    Refusal(
        r"packages .*",
        r".*Package Management Service is not enabled|HTTP 503 Service Unavailable",
        "As a Pulsar broker without `enablePackagesManagement`.",
    ),
    Refusal(r"proxy-stats .*", r"proxy statistics", "Proxies have these paths, brokers do not."),
    Refusal(r"broker-stats allocator-stats", r"allocator", "A region does not run on a JVM."),
    Refusal(
        r"broker-stats monitoring-metrics",
        r"no message",
        "The tool fails on an empty list; `/metrics` has the figures.",
    ),
    Refusal(
        r"namespaces get-schema-autoupdate-strategy",
        r"java.lang.NullPointerException",
        "The tool cannot print a policy that is unset.",
    ),
    Refusal(
        r"namespaces list-cluster",
        r"java.lang.IllegalArgumentException",
        "The tool expects a name of Pulsar's first version of the API.",
    ),
    Refusal(
        r"namespaces split-bundle",
        r"a bundle cannot be split",
        "A region is one broker: a namespace has one bundle.",
    ),
    Refusal(
        r"(namespaces|topicPolicies) set-entry-filters.*",
        r"entry_filters: .*Java classes",
        "A region cannot run Java classes.",
    ),
    Refusal(
        r"schemas extract",
        r"java.lang.ClassNotFoundException",
        "The tool reads a class of the user; the walk gives it none.",
    ),
    Refusal(
        r"topics (create-shadow-topic|set-shadow-topics)",
        r".*no shadow topics",
        "Each topic stores its own messages.",
    ),
    Refusal(
        r"transactions (abort-transaction|transaction-.*)",
        r".*(transaction|nothing)",
        "The walk names a transaction that does not exist.",
    ),
    Refusal(
        r"transactions scale-transactionCoordinators",
        r"transaction_coordinators",
        "The topology sets the number of coordinators.",
    ),
)
"""All errors of a run of all commands. The first matching row applies."""
OF_WHAT_IT_SENDS: Final = re.compile(
    r"(unknown|unrecogni[sz]ed|unexpected|not allowed|no such) .*(field|propert|parameter|key)"
    r"|(field|propert|parameter|key)\S* .*(unknown|unrecogni[sz]ed|unexpected|not allowed)",
    re.IGNORECASE,
)
"""Pattern of errors about an unknown field or parameter. They are never correct: a region ignores unknown ones."""


def why(command: str, error: str) -> str | None:
    """Return the reason why the error is correct; None: it is not expected."""
    found = listed(command, error)
    return None if found is None or OF_WHAT_IT_SENDS.search(error) else found.why


def listed(command: str, error: str) -> Refusal | None:
    """Return the first row that matches the command and its error; None: there is none."""
    found = (one for one in REFUSALS if re.fullmatch(one.commands, command) and re.match(one.error, error))
    return next(found, None)
