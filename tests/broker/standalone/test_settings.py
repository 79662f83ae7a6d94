"""Pulsar's settings are applied, rejected with the reason, or ignored by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from emulator.broker.standalone.settings import APPLIED, FIXED, NUMBER_MAX, ignored, standalone_config
from emulator.config.region import RegionConfig

DATA = Path("/pulsar/data")
PAGE = Path(__file__).parents[3] / "docs" / "TESTCONTAINERS.md"


def test_without_settings_a_region_is_pulsars_standalone_cluster() -> None:
    config = standalone_config({"clusterName": ""}, DATA)
    assert (config.region, config.cluster) == ("standalone", "standalone")
    assert (config.service_port, config.admin_port, config.advertised_host) == (6650, 8080, "localhost")
    assert config.settings.transaction_coordinators == 0
    assert [one.name for one in config.namespaces] == ["public/default", "pulsar/system"]
    assert RegionConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("clusterName", "tc-cluster", "region", "tc-cluster"),
        ("advertisedAddress", "pulsar.test", "advertised_host", "pulsar.test"),
        ("maxMessageSize", "1000", "settings.max_message_bytes", 1_000),
        ("keepAliveIntervalSeconds", "5", "settings.keep_alive_interval_ms", 5_000),
        ("maxUnackedMessagesPerConsumer", "0", "settings.max_unacked_messages_per_consumer", NUMBER_MAX),
        ("activeConsumerFailoverDelayTimeMillis", "0", "settings.failover_delay_ms", 0),
        ("transactionCoordinatorEnabled", "TRUE", "settings.transaction_coordinators", 4),
        ("allowAutoTopicCreation", "false", "settings.allow_auto_topic_creation", False),
    ],
)
def test_a_setting_is_applied(name: str, value: str, field: str, expected: object) -> None:
    found: Any = standalone_config({name: value}, DATA)
    for part in field.split("."):
        found = getattr(found, part)
    assert found == expected


@pytest.mark.parametrize(
    ("values", "policy", "expected"),
    [
        ({"brokerDeduplicationEnabled": "true"}, "deduplication", True),
        ({"ttlDurationDefaultInSeconds": "60"}, "message_ttl", 60),
        ({"replicatedSubscriptionsSnapshotTimeoutSeconds": "2"}, "snapshot_timeout_ms", 2_000),
        (
            {"allowAutoSubscriptionCreation": "false"},
            "auto_subscription_creation",
            {"allowAutoSubscriptionCreation": False},
        ),
        (
            {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "3"},
            "auto_topic_creation",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        ),
        (
            {"defaultRetentionTimeInMinutes": "0", "defaultRetentionSizeInMB": "0"},
            "retention",
            {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        ),
        (
            {"defaultRetentionTimeInMinutes": "10"},
            "retention",
            {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
        ),
        (
            {"brokerDeleteInactiveTopicsEnabled": "true"},
            "inactive_topics",
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 60,
                "deleteWhileInactive": True,
            },
        ),
    ],
)
def test_a_setting_is_the_default_of_a_policy(values: dict[str, str], policy: str, expected: object) -> None:
    assert standalone_config(values, DATA).broker_policies[policy] == expected


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("maxMessageSize", "5MB", "must be a whole number from 1 to 2147483647"),
        ("maxMessageSize", "9" * 30, "must be a whole number"),
        ("webServicePort", "0", "must be a whole number from 1 to 65535"),
        ("brokerServicePort", "--5", "must be a whole number"),
        ("transactionCoordinatorEnabled", "yes", "must be true or false"),
        ("clusterName", "two words", "letters, digits"),
        ("advertisedAddress", "http://host", "host name"),
        ("brokerDeduplicationEnabled", "1", "neither true nor false"),
        ("allowAutoTopicCreationType", "many", "neither partitioned nor non-partitioned"),
        ("brokerDeleteInactiveTopicsMode", "sometimes", "sometimes"),
        ("tlsEnabledWithKeyStore", "true", "PEM files; remove it or set false"),
        ("tokenSettingPrefix", "my", "without a prefix; remove it$"),
        ("authorizationProvider", "my.Provider", "Pulsar's own provider; remove it or set org"),
        ("acknowledgmentAtBatchIndexLevelEnabled", "false", "remove it or set true"),
    ],
)
def test_a_value_that_cannot_be_applied_is_an_error_with_the_rule(name: str, value: str, rule: str) -> None:
    others = {"brokerDeleteInactiveTopicsEnabled": "true"} if "Inactive" in name else {}
    with pytest.raises(ValueError, match=f"^{re.escape(name)}={re.escape(value)}: .*{rule}"):
        standalone_config({**others, name: value}, DATA)


def test_settings_of_parts_that_a_region_does_not_have_are_ignored_by_name() -> None:
    values = {"managedLedgerX": "1", "bookkeeperY": "", "clusterName": "a", "functionsWorkerEnabled": "false"}
    assert ignored(values) == ["managedLedgerX"]
    standalone_config(values, DATA)


def test_the_page_names_every_setting() -> None:
    """Each in code spans of its section; those with an only value with the value."""
    text = PAGE.read_text()
    applied, fixed = (
        text.partition(f"{heading}\n")[2].partition("\n#")[0] for heading in ("### Applied", "### Fixed")
    )
    assert set(re.findall(r"`(\w+)`", applied)) == APPLIED
    assert set(re.findall(r"`(\w+=[\w.]*)`", fixed)) == {
        f"{name}={only}" for name, (only, _) in FIXED.items()
    }
