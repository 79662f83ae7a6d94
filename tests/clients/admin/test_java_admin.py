"""Every method of the Java admin client: accepted, or rejected for a reason that is listed here."""

from __future__ import annotations

import re

import pytest

from tests.clients.admin.methods import ACCEPTED, Outcome, every_call

REFUSALS = {
    r"functions\.|sources?\.|sinks?\.|worker\.|packages\.": "503",
    r"proxyStats\.": "404 proxy statistics",
    r"brokerStats\.getAllocatorStats": "404 allocator",
    r"namespaces\.(getNamespaces\(String tenant, String cluster|getReplicationConfigVersion)": "404 .*not supported",
    r"namespaces\.splitNamespaceBundle": "412 a bundle cannot be split",
    r"namespaces\.deleteNamespaceBundle\(String namespace, String bundleRange\)": "409 Cannot delete non empty",
    r"nonPersistentTopics\.(getStats|getInternalStats|unload)": "404 topic non-persistent",
    r"topics\.createShadowTopic": "412 PULSAR.SHADOW_SOURCE",
    r"topics\.triggerOffload": "412 a region does not offload",
    r"topics\.revokePermissions": "412 Permissions are not set",
    r"transactions\.(abort|getTransactionIn|getTransactionMetadata)": "404 .*(transaction|nothing)",
    r"transactions\.scaleTransactionCoordinators": "406 transaction_coordinators",
}
"""Methods, and how status and reason begin. Each is right with the arguments of the test, or a row of docs/ADMIN.md."""
IGNORED = {
    "brokers.healthcheck": {"brokerId"},
    "namespaces.getAntiAffinityNamespaces": {"property"},
    "namespaces.getTopics": {"includeSystemTopic"},
    "namespaces.splitNamespaceBundle": {"splitAlgorithmName", "unload"},
    "namespaces.unloadNamespaceBundle": {"destinationBroker"},
    "topicPolicies.deleteTopicPolicies": {"isGlobal"},
    "topicPolicies.removeMessageTTL": {"messageTTL"},
    "topics.createPartitionedTopic": {"createLocalTopicOnly"},
    "topics.delete": {"deleteSchema"},
    "topics.deletePartitionedTopic": {"deleteSchema"},
    "topics.getInternalStats": {"metadata"},
    "topics.getList": {"bundle", "includeSystemTopic"},
    "topics.getPartitionedStats": {
        "getEarliestTimeInBacklog",
        "getPreciseBacklog",
        "subscriptionBacklogSize",
    },
    "topics.getPartitionedTopicList": {"includeSystemTopic"},
    "topics.getStats": {"getEarliestTimeInBacklog", "getPreciseBacklog", "subscriptionBacklogSize"},
    "topics.removeMessageTTL": {"messageTTL"},
    "topics.updatePartitionedTopic": {"force", "updateLocalTopicOnly"},
    "transactions.getCoordinatorInternalStats": {"metadata"},
    "transactions.getPendingAckInternalStats": {"metadata"},
    "transactions.getPendingAckStats": {"lowWaterMarks"},
    "transactions.getTransactionBufferInternalStats": {"metadata"},
    "transactions.getTransactionBufferStats": {"lowWaterMarks", "segmentStats"},
}
"""Query parameters that the client sends and a region ignores: rows of docs/ADMIN.md."""


def is_expected(one: Outcome) -> bool:
    said = f"{one.status} {one.reason}"
    return one.kind == ACCEPTED or any(
        re.match(method, one.method) and re.match(reason, said) for method, reason in REFUSALS.items()
    )


@pytest.mark.real
@pytest.mark.slow
def test_no_method_is_rejected_for_its_parameters() -> None:
    found = every_call()
    assert len(found.outcomes) > 700
    assert [one for one in found.outcomes if not is_expected(one)] == []
    assert {(method, name) for method, names in IGNORED.items() for name in names} == found.ignored
