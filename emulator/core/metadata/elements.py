"""A document of the configuration store as elements. Each is a path of its own in the order of events (decision 0024):
that there is a document, each of its policies, each other field. Two clusters that change different policies of one
namespace at the same time lose neither.

    namespace/acme%2Forders                         there is such a namespace
    namespace/acme%2Forders/policies/deduplication  one of its policies
    tenant/acme/adminRoles                          a field
    partitioned-topic/persistent:%2F%2F…/partitions/8  it has eight partitions at least (INV-80)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from emulator.model.stored_keys import (
    NamespacePath,
    PartitionedTopicPath,
    StoredKey,
    TenantPath,
    TopicPoliciesPath,
    parse_path,
)
from emulator.model.values import PARTITIONS_MAX

EXISTENCE: Final = ""
"""The element that says whether there is a document."""
WHOLE: Final = "="
"""The element that is a document as a whole, where its fields mean nothing apart from each other."""
_POLICIES: Final = "policies"
_PARTITIONS: Final = "partitions"
SYNCED: Final[tuple[type[StoredKey], ...]] = (
    TenantPath,
    NamespacePath,
    TopicPoliciesPath,
    PartitionedTopicPath,
)
"""What is the same in all clusters. The broker's own policies are each cluster's, as Pulsar's dynamic configuration."""
_UNDIVIDED: Final = (PartitionedTopicPath.KIND,)


@lru_cache(maxsize=16_384)
def is_synced(path: str) -> bool:
    """Whether a path of the configuration store is one that clusters share."""
    return path.partition("/")[0] in _KINDS and isinstance(parse_path(path), SYNCED)


_KINDS: Final = frozenset(kind.KIND for kind in SYNCED)


def readable(path: str) -> str:
    """A path as a person writes it: `namespace/acme/orders`."""
    return path.replace("%2F", "/").replace("%25", "%")


def split_path(full_path: str) -> tuple[str, str]:
    """A document's path and an element of it. ValueError when clusters share no such path."""
    kind, _, rest = full_path.partition("/")
    name, separator, element = rest.partition("/")
    path = f"{kind}/{name}"
    if not is_synced(path) or (separator and not element):
        raise ValueError(f"path {full_path[:80]!r} is not shared by clusters")
    return path, element


def joined_path(path: str, element: str) -> str:
    return f"{path}/{element}" if element else path


def elements_of(path: str, document: bytes | None) -> dict[str, Any]:
    """Values by element, without EXISTENCE. ValueError for what is not a document."""
    if document is None:
        return {}
    parsed = json.loads(document)
    if not isinstance(parsed, Mapping):
        raise ValueError(f"what is to be stored at {path} is not a document")
    if path.partition("/")[0] in _UNDIVIDED:
        return _of_partitioned(parsed)
    found = {_escaped(field): value for field, value in parsed.items() if field != _POLICIES}
    policies = parsed.get(_POLICIES, {})
    if not isinstance(policies, Mapping):
        raise ValueError(f"the policies of {path} are not a document")
    found |= {policy_element(name): value for name, value in policies.items()}
    return found


def policy_element(name: str) -> str:
    return f"{_POLICIES}/{_escaped(name)}"


def document_of(path: str, elements: Mapping[str, Any]) -> bytes:
    """Inverse of `elements_of`: the same elements give the same bytes everywhere."""
    if path.partition("/")[0] in _UNDIVIDED:
        return _dumped(_partitioned_of(elements))
    fields: dict[str, Any] = {}
    policies: dict[str, Any] = {}
    for element, value in elements.items():
        first, separator, name = element.partition("/")
        if separator and first == _POLICIES:
            policies[_unescaped(name)] = value
        else:
            fields[_unescaped(element)] = value
    if policies:
        fields[_POLICIES] = policies
    return _dumped(fields)


def _of_partitioned(document: Mapping[str, Any]) -> dict[str, Any]:
    """Each number of partitions that the topic was given is an element of its own, so that of two clusters that let it
    grow at the same time neither takes partitions away (INV-80, decision 0024)."""
    others = {name: value for name, value in document.items() if name != _PARTITIONS}
    count = document.get(_PARTITIONS)
    return {WHOLE: others} if count is None else {f"{_PARTITIONS}/{count}": count, WHOLE: others}


def _partitioned_of(elements: Mapping[str, Any]) -> dict[str, Any]:
    counts = [value for element, value in elements.items() if _is_count(element)]
    document = dict(elements.get(WHOLE, {}))
    return document | {_PARTITIONS: max(counts)} if counts else document


def _is_count(element: str) -> bool:
    return element.startswith(f"{_PARTITIONS}/")


def is_implied(element: str, value: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether an element may stay although the document that is wanted does not name it: a smaller number."""
    return _is_count(element) and any(_is_count(one) and value <= count for one, count in wanted.items())


def check_element(path: str, element: str, value: Any) -> None:
    """The gate for what others say an element is. ValueError when no document can have it."""
    if path.partition("/")[0] not in _UNDIVIDED or element == EXISTENCE:
        return
    if element == WHOLE:
        if not isinstance(value, Mapping) or _PARTITIONS in value:
            raise ValueError(f"{element} of {path} is not a document without its number of partitions")
    elif type(value) is not int or not 1 <= value <= PARTITIONS_MAX or element != f"{_PARTITIONS}/{value}":
        raise ValueError(
            f"{element} {str(value)[:80]!r} is not a number of partitions from 1 to {PARTITIONS_MAX}"
        )


def _dumped(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _unescaped(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")
