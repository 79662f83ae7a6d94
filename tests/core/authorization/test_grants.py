"""The JSON form of grants: Pulsar's names, all of them, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.authorization.grants import (
    ACTIONS,
    GRANTS_MAX,
    NO_GRANTS,
    Grants,
    grants_as_json,
    parse_grants,
)

_NAMES = st.text(min_size=1, max_size=5)
_BY_ROLE = st.dictionaries(_NAMES, st.frozensets(st.sampled_from(ACTIONS)), max_size=3)
_GRANTS = st.builds(
    Grants,
    _BY_ROLE,
    st.dictionaries(_NAMES, _BY_ROLE.filter(bool), max_size=3),
    st.dictionaries(_NAMES, st.frozensets(_NAMES), max_size=3),
)


@given(_GRANTS)
def test_grants_survive_their_json_form(grants: Grants) -> None:
    assert parse_grants(grants_as_json(grants)) == grants


def test_all_of_pulsars_names_of_a_field_are_stored_under_one() -> None:
    sent = {
        "namespaceAuthentication": {"ada": ["consume", "produce"]},
        "destination_auth": {"persistent://a/b/c": {"bob": ["produce"]}},
        "topic_auth": {"persistent://a/b/d": {"bob": []}},
        "subscriptionAuthentication": {"audit": ["ada"]},
        "topicAuthentication": None,
        "newer": 3,
    }
    assert grants_as_json(parse_grants(sent)) == {
        "namespace_auth": {"ada": ["produce", "consume"]},
        "topic_auth": {"persistent://a/b/c": {"bob": ["produce"]}, "persistent://a/b/d": {"bob": []}},
        "subscription_auth_roles": {"audit": ["ada"]},
    }
    assert parse_grants({}) == NO_GRANTS


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (3, "permissions: 3 is not"),
        ({"namespace_auth": 3}, "namespace_auth: 3 is not"),
        ({"namespace_auth": {"": ["produce"]}}, "names that are not empty"),
        ({"namespace_auth": {"ada": "produce"}}, "is not a list"),
        ({"namespace_auth": {"ada": ["fly"]}}, "'fly' is none of"),
        ({"namespace_auth": {"ada": [3]}}, "not a name"),
        ({"topic_auth": {"t": ["produce"]}}, "is not a JSON object"),
        ({"subscription_auth_roles": {"s": {"a": 1}}}, "not a list"),
        ({"namespace_auth": {str(role): [] for role in range(GRANTS_MAX + 1)}}, "10,000 grants at most"),
    ],
)
def test_other_forms_are_refused_with_the_place(sent: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_grants(sent)
