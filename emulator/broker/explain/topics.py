"""Explains the state of topics, links and other objects of a region: one explainer per kind of `explanations.KINDS`.

Explanations are computed from the state machines themselves, and change no state that clients can observe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from emulator.broker.explain.metadata import why_shared
from emulator.broker.explain.producers import (
    access_sentences,
    why_clients_wait,
    why_disk_delays,
    why_producer_waits,
)
from emulator.broker.explain.subscriptions import explain_subscription
from emulator.broker.explain.transactions import (
    ExplanationBuilder,
    explain_key,
    explain_transaction,
    known_keys,
    known_transactions,
    why_not_readable,
)
from emulator.broker.region import Region
from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import LoadState
from emulator.core.metadata.event import readable
from emulator.model.explanations import KINDS, Explanation, explained
from emulator.model.reasons import Cause, Reason, ReasonRow
from emulator.model.suggestions import nearest

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explainer:
    """The functions that list and explain the objects of one kind."""

    names: Callable[[Region], Iterable[Words]]
    """Returns the names of the objects of the kind that the region can explain. Subscriptions, replication and
    snapshots are those of loaded topics."""
    explain: Callable[[Region, Words, ExplanationBuilder], Explanation]
    """Explains the object with this name."""


class NotKnown(Exception):
    """The kind or name does not exist; the message suggests the most similar one."""


def explain(region: Region, kind: str, name: str) -> Explanation:
    """Explain the object `name` of a kind. `name`: words separated by spaces; topics and transactions also by their
    short forms. NotKnown when the kind or name does not exist."""
    explainer = _explainer(kind)
    known = list(explainer.names(region))
    for words in known:
        if _matches(name, words):
            build = partial(explained, region.config.region, kind, " ".join(words))
            return explainer.explain(region, words, build)
    hint = nearest(name, (" ".join(map(_as_typed, words)) for words in known))
    rule = "" if hint is None else f" (did you mean {hint!r}?)"
    shape = " ".join(KINDS[kind].words)
    raise NotKnown(f"region {region.config.region} has no {kind} {name!r}{rule}; a name is {shape}")


def names(region: Region, kind: str) -> list[str]:
    """Return all names of a kind in short form, as a user would type them, sorted. NotKnown when the kind does not
    exist."""
    return sorted(" ".join(map(_as_typed, words)) for words in _explainer(kind).names(region))


def _explainer(kind: str) -> Explainer:
    explainer = EXPLAINERS.get(kind)
    if explainer is None:
        hint = nearest(kind, KINDS)
        rule = f" (did you mean {hint!r}?)" if hint else ""
        raise NotKnown(f"{kind!r} is not a kind{rule}; there are {', '.join(KINDS)}")
    return explainer


def _matches(typed: str, words: Words) -> bool:
    """Whether a typed name consists of the words of a known one, which may contain spaces themselves."""
    first, rest = words[0], words[1:]
    if not rest:
        return typed in _spellings(first)
    return any(
        typed.startswith(f"{one} ") and _matches(typed[len(one) + 1 :], rest) for one in _spellings(first)
    )


def _spellings(word: str) -> set[str]:
    """Return the forms in which a user may type a word."""
    return {word, _short(word), readable(word), word.removeprefix("persistent://")}


def _as_typed(word: str) -> str:
    """Return a word as a user would type it: without the escapes of metadata paths. Escapes in topic names are kept."""
    return _short(word) if "://" in word else readable(_short(word))


def _short(word: str) -> str:
    """Return the short form of the name of a topic or transaction."""
    if word.startswith("("):
        return word.strip("()")
    return word.removeprefix("persistent://").removeprefix("public/default/") if "://" in word else word


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


# Topics.


def _topics(region: Region) -> Iterable[Words]:
    return [(name,) for name in region.directory.all_names()]


def _topic(region: Region, words: Words, build: ExplanationBuilder) -> Explanation:
    topic = region.directory.serving.get(words[0])
    if topic is None:
        cause = _NOT_SERVED.get(region.directory.state_of(words[0]))
        if cause is None:
            return build("stored; it is loaded when a client or a remote region uses it", None, [])
        return build("not served", None, [cause(), why_disk_delays(region, None)])
    clients = [one for one in topic.producers.values() if one.source_region is None]
    consumers = sum(len(one.consumers) for one in topic.subscriptions.values())
    summary = (
        f"serves {_entries(topic.log.next_entry_id - topic.log.first_entry_id)} "
        f"to {_count(len(topic.subscriptions), 'subscription')} with {_count(consumers, 'consumer')}; "
        f"{_count(len(clients), 'producer')} of clients"
    )
    reasons = [
        *_why_regions_lack(topic),
        why_not_readable(region, topic),
        why_clients_wait(topic),
        why_disk_delays(region, topic),
        why_producer_waits(topic),
    ]
    return build("; ".join([summary, *access_sentences(topic)]), topic.metrics.loaded_ms, reasons)


_NOT_SERVED: Mapping[LoadState, ReasonRow] = {
    LoadState.OPENING: Cause.TOPIC_OPENING,
    LoadState.LEAVING: Cause.TOPIC_LEAVING,
    LoadState.DELETING: Cause.TOPIC_DELETING,
}


def _why_regions_lack(topic: Topic) -> list[Reason]:
    """Return one reason for each region that lacks entries; `explain replication` explains each of them."""
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


# Replication.


def _replicators(region: Region) -> Iterable[Words]:
    return [
        (topic.full_name, remote) for topic in region.directory.serving.values() for remote in region.peers
    ]


def _replication(region: Region, words: Words, build: ExplanationBuilder) -> Explanation:
    topic = region.directory.serving[words[0]]
    replicator = topic.replicators.get(words[1])
    if replicator is None:
        return build("not replicated", None, [_why_not_replicated(region, topic, words[1])])
    backlog = replicator.backlog
    summary = (
        f"{words[1]} has all entries" if not backlog else f"{words[1]} lacks {_entries(backlog)} at most"
    )
    return build(summary, replicator.since_ms, [replicator.why_not(), why_not_readable(region, topic)])


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


def _snapshot(region: Region, words: Words, build: ExplanationBuilder) -> Explanation:
    sync = region.directory.serving[words[0]].subscriptions.replicated
    assert sync is not None
    counters = sync.summary()
    summary = (
        f"{counters['completed']} of {_count(counters['started'], 'snapshot')} completed, "
        f"{counters['timed_out']} timed out, {counters['pending']} under way"
    )
    return build(f"{summary}; {_describe_newest(sync)}", None, [sync.snapshots.why_not()])


def _describe_newest(sync: ReplicatedSubscriptions) -> str:
    """Describe the newest snapshot: the local position, and the corresponding positions in other regions."""
    if not sync.snapshots.completed:
        return "none is known"
    snapshot = sync.snapshots.completed[-1]
    elsewhere = ", ".join(f"{position} in {region}" for region, position in snapshot.positions)
    return f"the newest is {snapshot.local_position} here, {elsewhere}"


# The cluster's configuration store.


def _paths(region: Region) -> Iterable[Words]:
    stored = [change.path for change in region.metadata.list("")]
    replaced = region.synchronizer.damage.reports if region.synchronizer is not None else ()
    return [(path,) for path in dict.fromkeys((*stored, *replaced))]


def _path(region: Region, words: Words, build: ExplanationBuilder) -> Explanation:
    metadata = region.metadata
    change = metadata.get(words[0])
    if change is None:  # a row that was damaged and removed
        summary = f"no value, as of revision {metadata.revision}"
    else:
        value = (change.value or b"").decode(errors="replace")
        summary = f"version {change.version}, as of revision {metadata.revision}: {value}"
    if metadata.read_failure is not None:
        return build(summary, None, [Cause.STORE_AWAY(failure=str(metadata.read_failure))])
    return build(summary, None, why_shared(metadata, region.synchronizer, words[0]))


# Links.


def _links(region: Region) -> Iterable[Words]:
    return [(region.config.region, peer) for peer in region.peers]


def _link(region: Region, words: Words, build: ExplanationBuilder) -> Explanation:
    peer = region.peers[words[1]]
    summary = "established" if peer.connected else "not established"
    return build(summary, peer.since_ms, [peer.why_not])


EXPLAINERS: Mapping[str, Explainer] = {
    "topic": Explainer(_topics, _topic),
    "subscription": Explainer(_subscriptions, explain_subscription),
    "replication": Explainer(_replicators, _replication),
    "snapshot": Explainer(_replicated_topics, _snapshot),
    "metadata": Explainer(_paths, _path),
    "link": Explainer(_links, _link),
    "transaction": Explainer(known_transactions, explain_transaction),
    "transaction-key": Explainer(known_keys, explain_key),
}
"""The explainer of each kind in KINDS."""
