"""Commands of pulsar-admin that end with an error: what the error is, and why it is right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple


class Refusal(NamedTuple):
    """Commands and errors are regular expressions of the whole command and of the beginning of the error."""

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
"""Each error that a walk over all commands finds; the first row that matches applies."""
OF_WHAT_IT_SENDS: Final = re.compile(
    r"(unknown|unrecogni[sz]ed|unexpected|not allowed|no such) .*(field|propert|parameter|key)"
    r"|(field|propert|parameter|key)\S* .*(unknown|unrecogni[sz]ed|unexpected|not allowed)",
    re.IGNORECASE,
)
"""An error because of the name of a field or parameter. None is right: a region ignores unknown ones."""


def why(command: str, error: str) -> str | None:
    """Return why the error is right; None when it is not listed."""
    found = listed(command, error)
    return None if found is None or OF_WHAT_IT_SENDS.search(error) else found.why


def listed(command: str, error: str) -> Refusal | None:
    """Return the first row that matches."""
    found = (one for one in REFUSALS if re.fullmatch(one.commands, command) and re.match(one.error, error))
    return next(found, None)
