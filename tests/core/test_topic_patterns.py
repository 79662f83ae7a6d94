"""Topic patterns match as Java's would, in time linear in the length of the name."""

from __future__ import annotations

import random
import re

import pytest

from emulator.core.topic_patterns import PATTERN_LENGTH_MAX, TopicPattern

PREFIX = "persistent://public/default/"


def fits(pattern: str, topic: str) -> bool:
    return TopicPattern(f"{PREFIX}{pattern}").fits(f"{PREFIX}{topic}")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders-.*", ["orders-", "orders-eu"], ["orders", "my-orders-eu"]),
        ("a|b", ["a"], ["ab"]),
        ("(eu|us)-[a-c]+", ["eu-a", "us-abc"], ["eu-", "ap-a", "us-abd"]),
        ("[^-]+", ["abc"], ["a-b", ""]),
        (r"v\d{2,3}", ["v12", "v123"], ["v1", "v1234"]),
        (r"v\d{2}", ["v12"], ["v123"]),
        (r"v\d{2,}", ["v12", "v12345"], ["v1"]),
        (r"\Qa.b\E.?", ["a.b", "a.bc"], ["axb"]),
        (r"a\.b", ["a.b"], ["axb"]),
        ("(?:ab)+?c", ["abc", "ababc"], ["c"]),
        ("(a*)*b", ["b", "aaab"], ["a"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\w-]*", ["a_b-1", ""], ["a.b"]),
        (r"\D\S\W", ["ab."], ["1b."]),
        ("orders$", ["orders"], ["orders2"]),
    ],
)
def test_what_a_pattern_fits(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [fits(pattern, topic) for topic in yes] == [True] * len(yes)
    assert [fits(pattern, topic) for topic in no] == [False] * len(no)


def test_a_pattern_without_a_domain_fits_too_and_so_does_the_name_of_the_whole_topic() -> None:
    assert TopicPattern("public/default/o.*").fits(f"{PREFIX}orders")
    assert TopicPattern(f"^{PREFIX}o.*").fits(f"{PREFIX}orders")
    assert fits("orders", "orders-partition-3")
    assert not fits("orders", "orders-partition-x")


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "a)", "[", "[a", "(*)", "a{", "a{x}", "a{3,2}", "a{99999}", "(a{999}){999}", "\\"),
        *("(?!a)b", "(?i)a", r"(a)\1", r"\bx", r"\p{L}", "a^b", "a$b", "[z-a]", "a" * PATTERN_LENGTH_MAX),
    ],
)
def test_an_invalid_or_unsupported_pattern_is_rejected_with_a_reason(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        TopicPattern(f"{PREFIX}{pattern}")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*.*.*.*)*b", "(a?){30}a{30}b"])
def test_catastrophic_backtracking_does_not_occur(pattern: str) -> None:
    assert not fits(pattern, "a" * 2_000)


@pytest.mark.parametrize("seed", range(30))
def test_like_the_engine_of_the_language_where_both_can(seed: int) -> None:
    chance = random.Random(seed)

    def random_pattern(depth: int) -> str:
        kinds = [lambda: chance.choice("ab.") for _ in range(3)]
        if depth:
            kinds += [
                lambda: random_pattern(depth - 1) + random_pattern(depth - 1),
                lambda: f"({random_pattern(depth - 1)}|{random_pattern(depth - 1)})",
                lambda: f"({random_pattern(depth - 1)}){chance.choice(['*', '+', '?', '{1,2}', '{0,1}'])}",
                lambda: chance.choice(["[ab]", "[^a]", "[a-b]"]),
            ]
        return chance.choice(kinds)()

    for _ in range(40):
        pattern = random_pattern(3)
        for _ in range(10):
            topic = "".join(chance.choice("abc") for _ in range(chance.randrange(6)))
            assert fits(pattern, topic) == bool(re.fullmatch(pattern, topic)), (pattern, topic)
