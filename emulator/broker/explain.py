"""Why something in this region is as it is: an explainer for each kind of `explanations.KINDS`.

Answers are made from what the state machines say themselves, and asking changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from emulator.broker.explain_access import access_sentences, why_somebody_waits
from emulator.broker.explain_transactions import (
    explain_key,
    explain_transaction,
    known_keys,
    known_transactions,
    why_transactions_block,
)
from emulator.broker.metadata_sync.explain import shared
from emulator.broker.region import Region
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_slot import SlotState
from emulator.core.metadata_sync.elements import readable
from emulator.explanations import KINDS, Explanation
from emulator.model import TopicName
from emulator.reasons import Cause
from emulator.spelling import nearest

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explainer:
    """Two functions for one kind."""

    names: Callable[[Region], Iterable[Words]]
    """All that this region knows."""
    explain: Callable[[Region, Words], Explanation]
    """For one of them."""


class NotKnown(Exception):
    """There is no such kind or name; the message says what there is."""


def explain(region: Region, kind: str, name: str) -> Explanation:
    """What this region says about `name` (words separated by spaces; a topic may be called by its short name).
    NotKnown when there is no such kind or thing."""
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
    """All names of a kind as a person would type them, sorted. NotKnown when there is no such kind."""
    return sorted(" ".join(map(_typed, words)) for words in _explainer(kind).names(region))


def _explainer(kind: str) -> Explainer:
    explainer = EXPLAINERS.get(kind)
    if explainer is None:
        hint = nearest(kind, KINDS)
        rule = f" (did you mean {hint!r}?)" if hint else ""
        raise NotKnown(f"{kind!r} is no kind{rule}; there are {', '.join(KINDS)}")
    return explainer


def _means(wanted: list[str], words: Words) -> bool:
    return len(wanted) == len(words) and all(
        one in (other, _short(other), readable(other)) or _long(one) == other
        for one, other in zip(wanted, words, strict=True)
    )


def _typed(word: str) -> str:
    """As a person would type it: without the escapes of a path in the metadata. Those of a topic are its name's own."""
    return _short(word) if "://" in word else readable(_short(word))


def _short(word: str) -> str:
    """A topic's name, or a transaction's, as it is usually typed."""
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
        state = region.directory.state_of(words[0])
        if state is SlotState.ABSENT:
            return _made(region, "topic", words, "stored, and loaded when somebody uses it", None, "", [])
        return _made(region, "topic", words, "not served", None, state.value, ["the store"])
    clients = [one for one in topic.producers.values() if one.source_region is None]
    consumers = sum(len(one.consumers) for one in topic.subscriptions.values())
    what = (
        f"serves {_entries(topic.log.next_entry_id - topic.log.first_entry_id)} "
        f"to {_count(len(topic.subscriptions), 'subscription')} with {_count(consumers, 'consumer')}; "
        f"{_count(len(clients), 'client')} publish"
    )
    behind = {name: one.backlog for name, one in topic.replicators.items() if one.backlog}
    why = [f"{name} lacks {backlog}" for name, backlog in sorted(behind.items())]
    waits_for = [f"replication {_short(words[0])} {name}" for name in sorted(behind)]
    blocks, by = why_transactions_block(region, topic)
    why += [blocks] if blocks else []
    waits_for += by
    why_waiting, what_for = why_somebody_waits(topic)
    return _made(
        region,
        "topic",
        words,
        "; ".join([what, *access_sentences(topic)]),
        topic.loaded_ms,
        "; ".join([*why, why_waiting] if why_waiting else why),
        [*waits_for, *what_for],
    )


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
        f"mark-delete is {topic.log.ledger_id}:{subscription.cursor.mark_delete}, {backlog} of the entries behind it "
        f"are not acknowledged, {_count(consumers, 'consumer')}, {_replication_status(subscription)}"
    )
    why, waits_for = [], []
    unacked = sum(state.unacked_messages for state in subscription.dispatcher.consumers)
    if backlog and not consumers:
        why.append("nobody consumes here")
        waits_for.append("a consumer, here or in a region that carries its position here")
    elif backlog and unacked:
        why.append(f"{_count(unacked, 'message')} handed out and not acknowledged")
        waits_for.append("acknowledgements of its consumers")
    elif backlog and not any(state.permits > 0 for state in subscription.dispatcher.consumers):
        why.append("no consumer asks for more")
        waits_for.append("permits of its consumers")
    if (
        topic.sync is not None
        and subscription.cursor.replicated
        and (told := topic.sync.why_not(subscription))
    ):
        why.append(f"other regions are not told of a newer position: {told}")
    refused = tuple(sorted(subscription.cursor.unapplied))
    if refused:
        reason = Cause.POSITION_NOT_APPLIED_HERE(regions=", ".join(refused), here=region.config.region)
        why.append(reason)
        waits_for += reason.ends
    made = _made(region, "subscription", words, what, None, "; ".join(why), waits_for)
    return replace(made, replicates_to=_replicates_to(topic, subscription), not_applied=refused)


def _replication_status(subscription: Subscription) -> str:
    if subscription.cursor.replicated:
        return "replicated"
    by_whom = "; an administrator turned replication off" if subscription.cursor.replication_disabled else ""
    return f"not replicated{by_whom}"


def _replicates_to(topic: Topic, subscription: Subscription) -> tuple[str, ...] | None:
    if not subscription.cursor.replicated:
        return None
    return () if topic.sync is None else tuple(sorted(topic.sync.controller.remotes))


# Replication.


def _replicators(region: Region) -> Iterable[Words]:
    return [
        (topic.full_name, remote)
        for topic in region.directory.serving.values()
        for remote in topic.replicators
    ]


def _replication(region: Region, words: Words) -> Explanation:
    replicator = region.directory.serving[words[0]].replicators[words[1]]
    backlog = replicator.backlog
    what = f"{words[1]} has everything" if not backlog else f"{words[1]} lacks {_entries(backlog)} at most"
    why = replicator.why_not()
    return _made(region, "replication", words, what, replicator.since_ms, why, list(why.ends))


# Snapshots.


def _replicated_topics(region: Region) -> Iterable[Words]:
    return [(topic.full_name,) for topic in region.directory.serving.values() if topic.sync is not None]


def _snapshot(region: Region, words: Words) -> Explanation:
    sync = region.directory.serving[words[0]].sync
    assert sync is not None
    summary = sync.summary()
    what = (
        f"{summary['completed']} of {_count(summary['started'], 'snapshot')} completed, "
        f"{summary['timed_out']} timed out, {summary['pending']} under way"
    )
    why = sync.why_no_snapshot()
    return _made(region, "snapshot", words, what, None, why, list(why.ends))


# The cluster's configuration store.


def _paths(region: Region) -> Iterable[Words]:
    return [(change.path,) for change in region.metadata.list("")]


def _path(region: Region, words: Words) -> Explanation:
    metadata = region.metadata
    change = metadata.get(words[0])
    assert change is not None
    value = (change.value or b"").decode(errors="replace")
    what = f"version {change.version}, as of revision {metadata.revision}: {value}"
    of_all = shared(metadata, region.synchronizer, words[0])
    if metadata.away is None:
        why, waits_for = of_all or ("", [])
        return _made(region, "metadata", words, what, None, why, waits_for)
    why = f"it may be older than what the cluster agreed on, as the configuration store is away: {metadata.away}"
    return _made(region, "metadata", words, what, None, why, ["the configuration store of the cluster"])


# Links.


def _links(region: Region) -> Iterable[Words]:
    return [(region.config.region, peer) for peer in region.peers]


def _link(region: Region, words: Words) -> Explanation:
    peer = region.peers[words[1]]
    what = "established" if peer.connected else "not established"
    return _made(region, "link", words, what, peer.since_ms, peer.why_not, list(peer.why_not.ends))


def _made(
    region: Region, kind: str, words: Words, what: str, since_ms: int | None, why: str, waits_for: list[str]
) -> Explanation:
    return Explanation(region.config.region, kind, " ".join(words), what, since_ms, why, tuple(waits_for))


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
