"""Unknown JSON fields are ignored, as in Pulsar; known ones with a wrong value are rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from emulator.broker.admin.resource import Body
from emulator.broker.admin.resources import TABLE
from emulator.core.policies import namespace_document
from emulator.core.policies.topic_policies import REGISTRY
from tests.broker.admin.served import Served

UNKNOWN = {"sinceAnotherVersion": {"deep": [1, "x"]}}
OWN = "/geoemu/"
"""Paths of the emulator itself: their only clients are of the same version."""
NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/orders"
CLUSTER = "/admin/v2/clusters/mars"


def bodies() -> Iterator[Any]:
    """Every body of Pulsar's API that is a JSON object whose fields have names."""
    for resource in TABLE.resources:
        for method, operation in resource.operations.items():
            if operation.body is not None and not resource.path.startswith(OWN):
                for schema in (operation.body.schema, *operation.body.schema.get("oneOf", ())):
                    if "properties" in schema:
                        yield pytest.param(operation.body, schema, id=f"{method} {resource.path}")


def sample(schema: Mapping[str, Any]) -> Any:
    """Return a value of this form, with every field that the form names."""
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        return {name: sample(one) for name, one in schema["properties"].items()}
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    return {"integer": 1, "number": 1, "boolean": False, "array": [], "string": "", "object": {}}[kind]


@pytest.mark.parametrize(("body", "schema"), list(bodies()))
def test_an_unknown_field_changes_nothing(body: Body, schema: Mapping[str, Any]) -> None:
    known = sample(schema)
    assert body.parse(known | UNKNOWN) == body.parse(known)


@pytest.fixture(autouse=True)
def _topic(us: Served) -> None:
    assert us.ask("PUT", TOPIC).status == 204


def test_of_a_namespace_s_document_only_known_fields_count(us: Served) -> None:
    new = "/admin/v2/namespaces/public/new"
    rate = {"dispatchThrottlingRateInMsg": 7, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    document = {
        **UNKNOWN,
        "latency_stats_sample_rate": {"us": 1},
        "clusterDispatchRate": {"us": rate | UNKNOWN},
        "deduplicationEnabled": True,
        "persistence": {"bookkeeperEnsemble": 3, **UNKNOWN},
    }
    assert us.ask("PUT", new, document).status == 204
    assert us.get(new)["deduplicationEnabled"] is True
    assert us.get(new)["persistence"] == {"bookkeeperEnsemble": 3}
    assert us.get(f"{new}/dispatchRate")["dispatchThrottlingRateInMsg"] == 7
    assert "sinceAnotherVersion" not in us.get(new)


def test_every_field_of_the_document_is_a_policy_s() -> None:
    segments = {policy.at_namespace for policy in REGISTRY.values() if policy.at_namespace}
    assert {name for name in namespace_document.FIELD_OF if name not in segments} == set()


def test_quotas_of_a_backlog_are_part_of_the_document(us: Served) -> None:
    quota = {"destination_storage": {"limitSize": 7, "limitTime": -1, "policy": "producer_exception"}}
    new = "/admin/v2/namespaces/public/new"
    assert us.ask("PUT", new, {"backlog_quota_map": quota}).status == 204
    assert us.get(new)["backlog_quota_map"]["destination_storage"]["limitSize"] == 7
    assert us.get(f"{new}/backlogQuotaMap")["destination_storage"]["limitSize"] == 7


def test_a_field_of_pulsar_without_a_policy_is_refused(us: Served) -> None:
    reply = us.ask("PUT", "/admin/v2/namespaces/public/new", b'{"migrated": true}')
    assert (reply.status, reply.json()["reason"]) == (400, "migrated: True is not supported by this region")


@pytest.mark.parametrize("name", ["excluded", "isExcluded"])
def test_a_message_that_is_left_out_may_be_named_either_way(us: Served, name: str) -> None:
    """The Java client 4.0.7 sends `excluded` with every reset."""
    subscription = f"{TOPIC}/subscription/billing"
    assert us.ask("PUT", subscription, b'{"ledgerId":-1,"entryId":-1}').status == 204
    ends = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0}
    for excluded in (True, False):
        body = json.dumps(ends | {name: excluded} | UNKNOWN).encode()
        assert us.ask("POST", f"{subscription}/resetcursor", body).status == 204
    wrong = us.ask("POST", f"{subscription}/resetcursor", ends | {name: "yes"})
    assert (wrong.status, wrong.json()["reason"]) == (400, f"{name}: 'yes' must be true or false")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        (
            "POST",
            f"{NAMESPACE}/persistence",
            {"bookkeeperEnsemble": "many"},
            400,
            "bookkeeperEnsemble: 'many'",
        ),
        (
            "POST",
            f"{NAMESPACE}/retention",
            {"retentionTimeInMinutes": "x"},
            400,
            "retentionSizeInMB is missing",
        ),
        ("PUT", CLUSTER, {"serviceUrl": 7}, 400, "serviceUrl: '7' must be of type string"),
        ("PUT", "/admin/v2/tenants/acme", {"allowedClusters": "us"}, 400, "allowedClusters"),
        ("PUT", "/admin/v2/resourcegroups/g", {"publishRateInMsgs": "1"}, 400, "publishRateInMsgs: '1'"),
        ("PUT", f"{CLUSTER}/failureDomains/d", {"brokers": 1}, 400, "brokers"),
    ],
)
def test_a_known_field_with_a_wrong_value_is_refused_by_its_name(
    us: Served, method: str, path: str, body: Any, status: int, words: str
) -> None:
    if path.startswith(f"{CLUSTER}/"):
        assert us.ask("PUT", CLUSTER, b"{}").status == 204
    reply = us.ask(method, path, body | UNKNOWN)
    assert (reply.status, words in reply.json()["reason"]) == (status, True), reply


def test_unknown_parameters_and_headers_are_ignored(us: Served) -> None:
    headers = {"X-Since-Another-Version": "1", "Accept-Encoding": "gzip"}
    reply = us.ask("GET", f"{TOPIC}/stats?sinceAnotherVersion=%7B%7D&getPreciseBacklog=true", headers=headers)
    assert reply.status == 200


def test_of_a_repeated_parameter_the_first_counts(us: Served) -> None:
    """As in JAX-RS, with which Pulsar parses parameters."""
    subscription = f"{TOPIC}/subscription/billing"
    assert us.ask("PUT", f"{subscription}?replicated=true&replicated=false").status == 204
    assert list(us.get(f"{subscription}/replicatedSubscriptionStatus").values()) == [True]
