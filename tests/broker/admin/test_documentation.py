"""The generated documentation of the admin routes matches the routes."""

from __future__ import annotations

from emulator.broker.admin.openapi import openapi_document
from emulator.broker.admin.resources import SUBJECTS, TABLE


def test_the_document_has_each_path_and_method_of_the_rows() -> None:
    paths = openapi_document(SUBJECTS)["paths"]
    documented = {
        (path, method.upper())
        for path, methods in paths.items()
        for method in methods
        if method != "parameters"
    }
    assert documented == {(row.path, method) for row in TABLE.resources for method in row.operations}


def test_the_document_has_parameters_and_body_of_each_operation() -> None:
    paths = openapi_document(SUBJECTS)["paths"]
    for row in TABLE.resources:
        named = [one["name"] for one in paths[row.path].get("parameters", [])]
        assert named == list(row.names)
        for method, operation in row.operations.items():
            document = paths[row.path][method.lower()]
            assert [one["name"] for one in document.get("parameters", [])] == [
                one.name for one in operation.query
            ]
            assert ("requestBody" in document) == (operation.body is not None)
            assert ("204" in document["responses"]) == operation.empty
            assert document["summary"] == operation.doc


def test_every_operation_is_documented() -> None:
    for row in TABLE.resources:
        for operation in row.operations.values():
            assert operation.doc.endswith("."), row.path
