"""The JSON of policies, as Pulsar's tools send it."""

from __future__ import annotations

import pytest

from emulator.core.flow.rate_limit import RateLimit
from emulator.core.policies.declaration import OutOfRange
from emulator.core.policies.lifetime import (
    BACKLOG_QUOTAS,
    KEEP_EVERYTHING,
    MESSAGE_TTL,
    RETENTION,
    Quota,
    QuotaAction,
    QuotaKind,
    Retention,
)
from emulator.core.policies.limits import DISPATCH_RATE, MAX_PRODUCERS, PUBLISH_RATE


@pytest.mark.parametrize(
    ("policy", "sent", "kept"),
    [
        (
            PUBLISH_RATE,
            {"publishThrottlingRateInMsg": 200, "publishThrottlingRateInByte": -1},
            RateLimit(200, 0, 1),
        ),
        (
            DISPATCH_RATE,
            {
                "dispatchThrottlingRateInMsg": 100,
                "dispatchThrottlingRateInByte": 1048576,
                "ratePeriodInSecond": 60,
                "relativeToPublishRate": False,
            },
            RateLimit(100, 1048576, 60),
        ),
        (MAX_PRODUCERS, 50, 50),
        (
            RETENTION,
            {"retentionTimeInMinutes": 1440, "retentionSizeInMB": 20480},
            Retention(1440, 20480),
        ),
        (RETENTION, {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}, KEEP_EVERYTHING),
        (MESSAGE_TTL, 3600, 3600),
        (
            BACKLOG_QUOTAS,
            {"destination_storage": {"limit": "10240", "policy": "producer_request_hold"}},
            {QuotaKind.SIZE: Quota(10240, -1, QuotaAction.HOLD)},
        ),
        (
            BACKLOG_QUOTAS,
            {"message_age": {"limitTime": 5, "limitSize": -1, "policy": "consumer_backlog_eviction"}},
            {QuotaKind.AGE: Quota(-1, 5, QuotaAction.EVICT)},
        ),
    ],
)
def test_the_forms_are_those_that_tools_send(policy, sent, kept) -> None:  # type: ignore[no-untyped-def]
    assert policy.codec.decode(sent) == kept
    assert policy.codec.decode(policy.codec.encode(kept)) == kept


@pytest.mark.parametrize(
    ("policy", "sent", "problem"),
    [
        (RETENTION, 5, ValueError),
        (RETENTION, {"retentionTimeInMinutes": 5}, ValueError),
        (RETENTION, {"retentionTimeInMinutes": 5, "retentionSizeInMB": 0}, OutOfRange),
        (RETENTION, {"retentionTimeInMinutes": -2, "retentionSizeInMB": 0}, OutOfRange),
        (RETENTION, {"retentionTimeInMinutes": 10**30, "retentionSizeInMB": 1}, OutOfRange),
        (MESSAGE_TTL, -1, OutOfRange),
        (MESSAGE_TTL, True, ValueError),
        (BACKLOG_QUOTAS, {"destination_storage": {"limit": 1, "policy": "give_up"}}, ValueError),
        (BACKLOG_QUOTAS, {"destination_storage": {"limit": 1}}, ValueError),
        (BACKLOG_QUOTAS, {"weight": {"limit": 1, "policy": "producer_exception"}}, ValueError),
    ],
)
def test_an_invalid_policy_value_is_rejected_with_a_reason(policy, sent, problem) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(problem):
        policy.codec.decode(sent)
