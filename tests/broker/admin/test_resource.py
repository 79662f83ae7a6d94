"""Rows of the route table: which request matches which row, and which tables are invalid."""

from __future__ import annotations

import pytest

from emulator.broker.admin.request import AdminRequest
from emulator.broker.admin.resource import (
    Body,
    Query,
    Resource,
    RouteMatch,
    RouteTable,
    changes,
    reads,
    split_path,
)
from emulator.net.http_server import HttpError, RequestHead


async def nothing(call: AdminRequest) -> None:
    return None


READ = reads(nothing, "Reads.", Query("deep", "All of it."), Query("expect", "Whom.", str))
WRITE = changes(nothing, "Writes.", body=Body(lambda raw: raw, {}))
TABLE = RouteTable(
    (
        Resource("/a/{one}", get=READ),
        Resource("/a/{one}/{two}", get=READ, put=WRITE),
        Resource("/a/{one}/fixed", delete=WRITE),
    )
)


def find(method: str, target: str) -> RouteMatch:
    return TABLE.find(RequestHead(method, target, {}))


def test_a_named_segment_is_any_text() -> None:
    assert find("GET", "/a/x%2Fy%20z").names == {"one": "x/y z"}


@pytest.mark.parametrize("target", ["/a/x", "/a/x/", "/a/x//", "/a/x?", "/a/x#there", "http://us:8080/a/x"])
def test_one_path_may_be_written_in_several_ways(target: str) -> None:
    assert find("GET", target).names == {"one": "x"}


@pytest.mark.parametrize(
    "target", ["/", "", "/a", "/a//", "/b/x", "*", "/a/x/y/z", "//a/x", "/A/x", "us:8080"]
)
def test_other_paths_are_not_offered(target: str) -> None:
    with pytest.raises(HttpError) as refused:
        find("GET", target)
    assert refused.value.status == 404


def test_head_is_get_without_its_answer() -> None:
    assert find("HEAD", "/a/x").operation is READ


def test_the_refusal_of_a_method_lists_the_supported_ones() -> None:
    with pytest.raises(HttpError) as refused:
        find("POST", "/a/x/fixed")
    assert refused.value.status == 405
    assert refused.value.headers == (("allow", "DELETE, GET, HEAD, PUT"),)


def test_parameters_are_parsed_and_unknown_ones_ignored() -> None:
    assert find("GET", "/a/x?deep=true&expect=%20b&authoritative=maybe").query == {
        "deep": True,
        "expect": " b",
    }
    assert find("GET", "/a/x?deep").query == {"deep": False}


@pytest.mark.parametrize("target", ["/a/x?deep=perhaps", "/a/%ff", "/a/x?expect=%ff", "/a/x?" + "y=1&" * 101])
def test_invalid_parameters_and_paths_are_refused(target: str) -> None:
    with pytest.raises(HttpError) as refused:
        find("GET", target)
    assert refused.value.status == 400


def test_a_row_with_more_words_goes_before_one_with_fewer() -> None:
    general, particular = (Resource(path, get=READ) for path in ("/a/{x}", "/a/b"))
    for rows in ((general, particular), (particular, general)):
        table = RouteTable(rows)
        assert table.find(RequestHead("GET", "/a/b", {})).resource is particular
        assert table.find(RequestHead("GET", "/a/c", {})).resource is general


@pytest.mark.parametrize(
    ("first", "second", "both"), [("/a/b/{y}", "/a/{x}/c", "/a/b/c"), ("/a/{y}", "/{x}/b", "/a/b")]
)
def test_of_two_rows_the_one_with_the_earlier_literal_applies(first: str, second: str, both: str) -> None:
    """`{topic}/permissions/{role}` before `{topic}/{subscription}/dispatchRate`."""
    rows = [Resource(path, get=READ) for path in (second, first)]
    assert RouteTable(rows).find(RequestHead("GET", both, {})).resource is rows[1]


@pytest.mark.parametrize(
    ("one", "two"), [("/a/{x}", "/a/{y}"), ("/a/{x}/c", "/a/{y}/c"), ("/{x}/b", "/{y}/b"), ("/a", "/a")]
)
def test_two_rows_for_one_request_are_refused(one: str, two: str) -> None:
    with pytest.raises(ValueError, match="match the same request"):
        RouteTable((Resource(one, get=READ), Resource(two, get=READ)))


def test_two_rows_for_different_methods_of_a_path_are_not() -> None:
    RouteTable((Resource("/a/{x}", put=WRITE), Resource("/a/b", get=READ)))


@pytest.mark.parametrize("path", ["a", "/a/", "/a//b", "/{x}/{x}", "/"])
def test_a_row_must_have_a_path_that_makes_sense(path: str) -> None:
    with pytest.raises(AssertionError):
        Resource(path, get=READ)


def test_slashes_inside_of_a_segment_stay_there() -> None:
    assert split_path("/a/b%2Fc%2f/") == ("a", "b/c/")
