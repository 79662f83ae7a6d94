"""Policies that limit the users of a topic, the size of its messages, and its rates. The JSON forms are Pulsar's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from emulator.core.flow.rate_limit import UNLIMITED, RateLimit
from emulator.core.policies.codecs import fields_of, whole_number, whole_numbers
from emulator.core.policies.declaration import BELOW_ZERO, Codec, OutOfRange, Policy, Scope

_BY_TOPIC: Final = "emulator.broker.topic.topic"
_BY_PUBLISHING: Final = "emulator.broker.topic.publishing"
_BY_SUBSCRIPTIONS: Final = "emulator.broker.topic.subscriptions"
PERIOD_SECONDS_MAX: Final = 86_400


NUMBER = whole_numbers("number")
_BOTH: Final = frozenset(Scope)


def _number_policy(name: str, at_namespace: str, at_topic: str, doc: str) -> Policy[int]:
    return Policy(
        name=name,
        at_namespace=at_namespace,
        at_topic=at_topic,
        at_broker=at_namespace,
        below_zero=BELOW_ZERO,
        codec=NUMBER,
        default=0,
        scopes=_BOTH,
        obeyed_by=_BY_TOPIC,
        doc=f"{doc} 0: no limit.",
    )


MAX_PRODUCERS: Policy[int] = _number_policy(
    "max_producers_per_topic",
    "maxProducersPerTopic",
    "maxProducers",
    "Maximum number of client producers of a topic; replicators do not count.",
)
MAX_CONSUMERS: Policy[int] = _number_policy(
    "max_consumers_per_topic",
    "maxConsumersPerTopic",
    "maxConsumers",
    "Maximum number of consumers of a topic.",
)
MAX_CONSUMERS_PER_SUBSCRIPTION: Policy[int] = _number_policy(
    "max_consumers_per_subscription",
    "maxConsumersPerSubscription",
    "maxConsumersPerSubscription",
    "Maximum number of consumers of a subscription.",
)
MAX_SUBSCRIPTIONS: Policy[int] = _number_policy(
    "max_subscriptions_per_topic",
    "maxSubscriptionsPerTopic",
    "maxSubscriptionsPerTopic",
    "Maximum number of subscriptions of a topic; at the maximum clients cannot create another.",
)
MAX_TOPICS: Policy[int] = Policy(
    name="max_topics_per_namespace",
    at_namespace="maxTopicsPerNamespace",
    at_broker="maxTopicsPerNamespace",
    below_zero=BELOW_ZERO,
    unset=0,
    codec=NUMBER,
    default=0,
    scopes=frozenset({Scope.BROKER, Scope.NAMESPACE}),
    obeyed_by="emulator.broker.topic_directory.topic_rules",
    doc="Maximum number of topics of a namespace; each partition counts. 0: no limit.",
)
MAX_MESSAGE_SIZE: Policy[int] = Policy(
    name="max_message_size",
    at_topic="maxMessageSize",
    codec=NUMBER,
    default=0,
    scopes=frozenset({Scope.TOPIC}),
    obeyed_by=_BY_PUBLISHING,
    doc="Maximum size of a client's message in bytes. 0: the region's maximum.",
)


def _limit(value: Any, what: str) -> int:
    """Decode a limit; -1 and 0: no limit."""
    return max(0, whole_number(value, what, minimum=-1))


def _publish_rate(value: Any) -> RateLimit:
    found = fields_of(value, ())
    names = ("publishThrottlingRateInMsg", "publishThrottlingRateInByte")
    messages, size_bytes = (_limit(found.get(name, -1), name) for name in names)
    return RateLimit(messages, size_bytes, 1)


def _publish_rate_as_json(rate: RateLimit) -> dict[str, Any]:
    return {
        "publishThrottlingRateInMsg": rate.messages or -1,
        "publishThrottlingRateInByte": rate.size_bytes or -1,
    }


def _dispatch_rate(value: Any) -> RateLimit:
    found = fields_of(value, ())
    names = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
    messages, size_bytes = (_limit(found.get(name, -1), name) for name in names)
    seconds = whole_number(found.get("ratePeriodInSecond", 1), "ratePeriodInSecond", minimum=1)
    if seconds > PERIOD_SECONDS_MAX:
        raise OutOfRange(f"ratePeriodInSecond: {seconds} is more than a day")
    return RateLimit(messages, size_bytes, seconds, _relative(found.get("relativeToPublishRate")))


def _relative(value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"relativeToPublishRate: {str(value)[:100]!r} is neither true nor false")
    return bool(value)


def _dispatch_rate_as_json(rate: RateLimit) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": rate.messages or -1,
        "dispatchThrottlingRateInByte": rate.size_bytes or -1,
        "relativeToPublishRate": rate.relative,
        "ratePeriodInSecond": rate.period_seconds,
    }


def _numbers(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "integer"} for name in names}}


DISPATCH_RATE_FORM: Codec[RateLimit] = Codec(
    _dispatch_rate,
    _dispatch_rate_as_json,
    {
        "type": "object",
        "properties": {
            "dispatchThrottlingRateInMsg": {"type": "integer"},
            "dispatchThrottlingRateInByte": {"type": "integer"},
            "ratePeriodInSecond": {"type": "integer"},
            "relativeToPublishRate": {"type": "boolean"},
        },
    },
)
PUBLISH_RATE: Policy[RateLimit] = Policy(
    name="publish_rate",
    at_namespace="publishRate",
    at_topic="publishRate",
    codec=Codec(
        _publish_rate,
        _publish_rate_as_json,
        _numbers("publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
    ),
    default=UNLIMITED,
    scopes=_BOTH,
    obeyed_by=_BY_PUBLISHING,
    doc="Rate at which clients may publish to a topic; faster clients are read more slowly.",
)


def _dispatch_policy(
    name: str, segment: str, doc: str, obeyed_by: str = _BY_SUBSCRIPTIONS
) -> Policy[RateLimit]:
    return Policy(
        name=name,
        at_namespace=segment,
        at_topic=segment,
        codec=DISPATCH_RATE_FORM,
        default=UNLIMITED,
        scopes=_BOTH,
        obeyed_by=obeyed_by,
        doc=doc,
    )


DISPATCH_RATE: Policy[RateLimit] = _dispatch_policy(
    "dispatch_rate", "dispatchRate", "Rate of dispatch to all consumers of a topic together."
)
SUBSCRIPTION_DISPATCH_RATE: Policy[RateLimit] = _dispatch_policy(
    "subscription_dispatch_rate",
    "subscriptionDispatchRate",
    "Rate of dispatch to the consumers of each subscription.",
)
SUBSCRIPTIONS_MAX: Final = 1_000
"""Maximum number of subscriptions of a topic with their own dispatch rates."""


def _rates_by_subscription(value: Any) -> Mapping[str, RateLimit]:
    rates = fields_of(value, ())
    if len(rates) > SUBSCRIPTIONS_MAX:
        raise OutOfRange(
            f"{len(rates)} subscriptions: at most {SUBSCRIPTIONS_MAX} may have rates of their own"
        )
    return {name: DISPATCH_RATE_FORM.decode(one) for name, one in rates.items()}


def _rates_as_json(rates: Mapping[str, RateLimit]) -> dict[str, Any]:
    return {name: DISPATCH_RATE_FORM.encode(one) for name, one in rates.items()}


DISPATCH_RATES_BY_SUBSCRIPTION: Policy[Mapping[str, RateLimit]] = Policy(
    name="dispatch_rates_by_subscription",
    at_topic="dispatchRate",
    own_rows=True,
    codec=Codec(_rates_by_subscription, _rates_as_json, {"type": "object"}),
    default={},
    scopes=frozenset({Scope.TOPIC}),
    obeyed_by=_BY_SUBSCRIPTIONS,
    doc="Rate of dispatch to the consumers of single subscriptions; `subscriptionDispatchRate` limits the others.",
)
REPLICATOR_DISPATCH_RATE: Policy[RateLimit] = _dispatch_policy(
    "replicator_dispatch_rate",
    "replicatorDispatchRate",
    "Rate of replication of a topic to each other region.",
    obeyed_by="emulator.broker.topic.replicators",
)

POLICIES = (
    MAX_PRODUCERS,
    MAX_CONSUMERS,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_SUBSCRIPTIONS,
    MAX_TOPICS,
    MAX_MESSAGE_SIZE,
    PUBLISH_RATE,
    DISPATCH_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    DISPATCH_RATES_BY_SUBSCRIPTION,
    REPLICATOR_DISPATCH_RATE,
)
