"""Explains the state of things in this region: an explainer for each kind of `explanations.KINDS`.

Answers are computed from the state machines themselves, and queries change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from emulator.broker.explain.access import access_sentences, why_producer_waits
from emulator.broker.explain.metadata import why_shared
from emulator.broker.explain.transactions import (
    explain_key,
    explain_transaction,
    known_keys,
    known_transactions,
    why_not_readable,
)
from emulator.broker.region import Region
from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import LoadState
from emulator.core.metadata.event import readable
from emulator.model.explanations import KINDS, Explanation, explained
from emulator.model.reasons import NO_REASON, Cause, Reason, ReasonRow
from emulator.model.suggestions import nearest
from emulator.model.values import TopicName

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explainer:
    """The two functions for one kind."""

    names: Callable[[Region], Iterable[Words]]
    """All names of the kind in this region."""
    explain: Callable[[Region, Words], Explanation]
    """Explains one of them."""


class NotKnown(Exception):
    """The kind or name does not exist; the message lists the existing ones."""


def explain(region: Region, kind: str, name: str) -> Explanation:
    """Explain `name` in this region (words separated by spaces; a topic may be called by its short name). NotKnown when
    the kind or name does not exist."""
    explainer = _explainer(kind)
    wanted = name.split(" ")
    known = list(explainer.names(region))
    for words in known:
        if _means(wanted, words):
            return explainer.explain(region, words)
    hint = nearest(" ".join(wanted), (" ".join(map(_typed, words)) for words in known))
    rule = "" if hint is None else f" (did you mean {hint!r}?)"
    shape = " ".join(KINDS[kind].words)
    raise NotKnown(f"region {region.config.region} has no {kind} {name!r}{rule}; a name is {shape}")


def names(region: Region, kind: str) -> list[str]:
    """All names of a kind as a user would type them, sorted. NotKnown when the kind does not exist."""
    return sorted(" ".join(map(_typed, words)) for words in _explainer(kind).names(region))


def _explainer(kind: str) -> Explainer:
    explainer = EXPLAINERS.get(kind)
    if explainer is None:
        hint = nearest(kind, KINDS)
        rule = f" (did you mean {hint!r}?)" if hint else ""
        raise NotKnown(f"{kind!r} is not a kind{rule}; there are {', '.join(KINDS)}")
    return explainer


def _means(wanted: list[str], words: Words) -> bool:
    return len(wanted) == len(words) and all(
        one in (other, _short(other), readable(other)) or _long(one) == other
        for one, other in zip(wanted, words, strict=True)
    )


def _typed(word: str) -> str:
    """As a user would type it: without the escapes of a path in the metadata. Escapes in a topic's name are its own."""
    return _short(word) if "://" in word else readable(_short(word))


def _short(word: str) -> str:
    """A topic's or a transaction's name, as it is usually typed."""
    if word.startswith("("):
        return word.strip("()")
    return word.removeprefix("persistent://").removeprefix("public/default/") if "://" in word else word


def _long(word: str) -> str:
    try:
        return str(TopicName.parse(word))
    except ValueError:
        return word


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


# Topics.


def _topics(region: Region) -> Iterable[Words]:
    return [(name,) for name in region.directory.all_names()]


def _topic(region: Region, words: Words) -> Explanation:
    topic = region.directory.serving.get(words[0])
    if topic is None:
        cause = _NOT_SERVED.get(region.directory.state_of(words[0]))
        if cause is None:
            return _made(
                region, "topic", words, "stored; it is loaded when a client or a remote region uses it"
            )
        return _made(region, "topic", words, "not served", None, cause())
    clients = [one for one in topic.producers.values() if one.source_region is None]
    consumers = sum(len(one.consumers) for one in topic.subscriptions.values())
    what = (
        f"serves {_entries(topic.log.next_entry_id - topic.log.first_entry_id)} "
        f"to {_count(len(topic.subscriptions), 'subscription')} with {_count(consumers, 'consumer')}; "
        f"{_count(len(clients), 'producer')} of clients"
    )
    return _made(
        region,
        "topic",
        words,
        "; ".join([what, *access_sentences(topic)]),
        topic.metrics.loaded_ms,
        *_lacking(topic),
        why_not_readable(region, topic),
        why_producer_waits(topic),
    )


_NOT_SERVED: Mapping[LoadState, ReasonRow] = {
    LoadState.OPENING: Cause.TOPIC_OPENING,
    LoadState.LEAVING: Cause.TOPIC_LEAVING,
    LoadState.DELETING: Cause.TOPIC_DELETING,
}


def _lacking(topic: Topic) -> list[Reason]:
    """One reason for each region that lacks entries: `explain replication` has the cause of each."""
    return [
        Cause.REGION_LACKS(region=name, backlog=_entries(one.backlog), topic=_short(topic.full_name))
        for name, one in sorted(topic.replicators.items())
        if one.backlog
    ]


# Subscriptions.


def _subscriptions(region: Region) -> Iterable[Words]:
    return [
        (topic.full_name, name) for topic in region.directory.serving.values() for name in topic.subscriptions
    ]


def _subscription(region: Region, words: Words) -> Explanation:
    topic = region.directory.serving[words[0]]
    subscription = topic.subscriptions[words[1]]
    backlog, consumers = subscription.backlog(), len(subscription.consumers)
    what = (
        f"mark-delete is {topic.log.ledger_id}:{subscription.cursor.mark_delete}, {backlog} of the entries after it "
        f"are not acknowledged, {_count(consumers, 'consumer')}, {_replication_status(subscription)}"
    )
    made = _made(
        region,
        "subscription",
        words,
        what,
        None,
        subscription.why_not() or why_not_readable(region, topic),
        _why_position_stays(topic, subscription),
    )
    not_applied = tuple(sorted(subscription.cursor.unapplied))
    return replace(made, replicates_to=_replicates_to(topic, subscription), not_applied=not_applied)


def _replication_status(subscription: Subscription) -> str:
    if subscription.cursor.replicated:
        return "replicated"
    by_whom = "; an administrator turned replication off" if subscription.cursor.replication_disabled else ""
    return f"not replicated{by_whom}"


def _replicates_to(topic: Topic, subscription: Subscription) -> tuple[str, ...] | None:
    if not subscription.cursor.replicated:
        return None
    return (
        ()
        if topic.subscriptions.replicated is None
        else tuple(sorted(topic.subscriptions.replicated.controller.remotes))
    )


def _why_position_stays(topic: Topic, subscription: Subscription) -> Reason:
    """For a subscription that is not replicated, only what its users should know."""
    if topic.subscriptions.replicated is None:
        return Cause.SNAPSHOT_NO_REMOTES() if subscription.cursor.replicated else NO_REASON
    reason = topic.subscriptions.replicated.why_not(subscription)
    return NO_REASON if reason.cause is Cause.SUBSCRIPTION_NOT_REPLICATED else reason


# Replication.


def _replicators(region: Region) -> Iterable[Words]:
    return [
        (topic.full_name, remote) for topic in region.directory.serving.values() for remote in region.peers
    ]


def _replication(region: Region, words: Words) -> Explanation:
    topic = region.directory.serving[words[0]]
    replicator = topic.replicators.get(words[1])
    if replicator is None:
        return _made(
            region, "replication", words, "not replicated", None, _why_not_replicated(region, topic, words[1])
        )
    backlog = replicator.backlog
    what = f"{words[1]} has all entries" if not backlog else f"{words[1]} lacks {_entries(backlog)} at most"
    return _made(
        region,
        "replication",
        words,
        what,
        replicator.since_ms,
        replicator.why_not(),
        why_not_readable(region, topic),
    )


def _why_not_replicated(region: Region, topic: Topic, remote: str) -> Reason:
    here = region.config.region
    clusters = ", ".join(sorted({here, *topic.replicators}))
    return Cause.NOT_REPLICATED(here=here, region=remote, clusters=clusters)


# Snapshots.


def _replicated_topics(region: Region) -> Iterable[Words]:
    return [
        (topic.full_name,)
        for topic in region.directory.serving.values()
        if topic.subscriptions.replicated is not None
    ]


def _snapshot(region: Region, words: Words) -> Explanation:
    sync = region.directory.serving[words[0]].subscriptions.replicated
    assert sync is not None
    summary = sync.summary()
    what = (
        f"{summary['completed']} of {_count(summary['started'], 'snapshot')} completed, "
        f"{summary['timed_out']} timed out, {summary['pending']} under way"
    )
    return _made(region, "snapshot", words, f"{what}; {_newest(sync)}", None, sync.why_no_snapshot())


def _newest(sync: ReplicatedSubscriptions) -> str:
    """The newest snapshot: the local position, and the corresponding ones elsewhere."""
    snapshot = sync.newest
    if snapshot is None:
        return "none is known"
    elsewhere = ", ".join(f"{position} in {region}" for region, position in snapshot.positions)
    return f"the newest is {snapshot.local_position} here, {elsewhere}"


# The cluster's configuration store.


def _paths(region: Region) -> Iterable[Words]:
    stored = [change.path for change in region.metadata.list("")]
    replaced = region.synchronizer.damage.reports if region.synchronizer is not None else ()
    return [(path,) for path in dict.fromkeys((*stored, *replaced))]


def _path(region: Region, words: Words) -> Explanation:
    metadata = region.metadata
    change = metadata.get(words[0])
    if change is None:  # a row that was damaged and removed
        what = f"no value, as of revision {metadata.revision}"
    else:
        value = (change.value or b"").decode(errors="replace")
        what = f"version {change.version}, as of revision {metadata.revision}: {value}"
    if metadata.away is not None:
        return _made(region, "metadata", words, what, None, Cause.STORE_AWAY(failure=str(metadata.away)))
    return _made(region, "metadata", words, what, None, *why_shared(metadata, region.synchronizer, words[0]))


# Links.


def _links(region: Region) -> Iterable[Words]:
    return [(region.config.region, peer) for peer in region.peers]


def _link(region: Region, words: Words) -> Explanation:
    peer = region.peers[words[1]]
    what = "established" if peer.connected else "not established"
    return _made(region, "link", words, what, peer.since_ms, peer.why_not)


def _made(
    region: Region, kind: str, words: Words, what: str, since_ms: int | None = None, *reasons: Reason
) -> Explanation:
    return explained(region.config.region, kind, " ".join(words), what, since_ms, reasons)


EXPLAINERS: Mapping[str, Explainer] = {
    "topic": Explainer(_topics, _topic),
    "subscription": Explainer(_subscriptions, _subscription),
    "replication": Explainer(_replicators, _replication),
    "snapshot": Explainer(_replicated_topics, _snapshot),
    "metadata": Explainer(_paths, _path),
    "link": Explainer(_links, _link),
    "transaction": Explainer(known_transactions, explain_transaction),
    "transaction-key": Explainer(known_keys, explain_key),
}
"""Every kind of KINDS has one."""
