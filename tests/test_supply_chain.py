"""Bills of materials, licences and the audit of the pinned packages."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.utils import canonicalize_name

from scripts import audit, sbom
from scripts.lock import read_lock, wanted
from tests.runtimes.containers import need_containers

PERMITTED = {
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "LGPL-2.1-or-later",  # crc32c, a library that is imported unchanged
    "MIT",
    "MIT-0",
    "MPL-2.0",  # certifi, a list of certificates that is used unchanged
    "PSF-2.0",
}


def check_valid(bom: Bom) -> None:
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(JsonV1Dot6(bom).output_as_string())
    assert problem is None, problem


def names(bom: Bom, kind: str) -> set[str]:
    return {one.name for one in bom.components if one.purl is not None and one.purl.type == kind}


def test_the_bill_of_the_wheel_lists_each_pinned_package_with_its_hashes() -> None:
    bom = sbom.bill_of_wheel()
    check_valid(bom)
    assert names(bom, "pypi") == set(wanted(sbom.PRODUCT_EXTRAS, read_lock()))
    assert all(one.hashes and one.version for one in bom.components)


def test_no_package_that_users_install_has_a_licence_that_was_not_examined() -> None:
    listed = {(name, licence) for name, _, licence in sbom.licences()}
    assert {part for _, licence in listed for part in licence.split(" OR ")} <= PERMITTED
    unknown = set(wanted(sbom.PRODUCT_EXTRAS, read_lock())) - {name for name, _ in listed}
    assert unknown <= {"colorama", "pywin32", "tzdata"}, "packages of another platform only"


@pytest.mark.real
@pytest.mark.parametrize("image", ["region", "testcontainers"])
def test_the_bill_of_an_image_lists_what_the_image_has(image: str) -> None:
    need_containers(image)
    bom = sbom.bill_of_image(image)
    check_valid(bom)
    program = "import json, importlib.metadata as m; print(json.dumps([d.name for d in m.distributions()]))"
    command = (
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "--entrypoint",
        "python3",
        sbom.tag_of(image),
        "-c",
        program,
    )
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    installed = {canonicalize_name(name) for name in found} - {"geoemu", "pip"}
    assert installed == names(bom, "pypi")
    assert {"libc6", "python3"} <= names(bom, "deb")


@pytest.mark.real
def test_the_bill_of_the_image_of_kafka_names_each_archive_with_its_digest() -> None:
    need_containers("kafka")
    bom = sbom.bill_of_image("kafka")
    check_valid(bom)
    archives = [one for one in bom.components if one.bom_ref.value.startswith("jar/")]
    assert "kafka-clients" in {one.name for one in archives}
    assert all(one.hashes for one in archives)
    assert "openjdk-17-jre-headless" in names(bom, "deb")


def test_a_bill_of_an_image_that_does_not_exist_names_the_command_that_builds_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def not_built(image: str) -> Bom:
        raise sbom.NotBuilt(f"{image}: no such image")

    monkeypatch.setattr(sbom, "bill_of_image", not_built)
    assert sbom.main(["region"]) == 2
    assert "bash compose/images.sh region" in capsys.readouterr().err
    assert sbom.main(["nothing"]) == 2
    assert "usage" in capsys.readouterr().err


# The audit.


def advisory(**affected: Any) -> dict[str, Any]:
    return {
        "id": "PYSEC-0",
        "summary": "a defect",
        "affected": [{"package": {"ecosystem": "PyPI", "name": "H11"}, **affected}],
    }


def in_range(*events: Mapping[str, str]) -> dict[str, Any]:
    return advisory(ranges=[{"type": "ECOSYSTEM", "events": list(events)}])


@pytest.mark.parametrize(
    ("record", "affects", "fixed"),
    [
        (advisory(versions=["0.16.0"]), True, ""),
        (advisory(versions=["0.15.0"]), False, ""),
        (in_range({"introduced": "0"}), True, ""),
        (in_range({"introduced": "0"}, {"fixed": "0.16.0"}), False, ""),
        (in_range({"introduced": "0"}, {"fixed": "0.17.0"}), True, "0.17.0"),
        (in_range({"introduced": "0.17"}), False, ""),
        (in_range({"introduced": "0"}, {"last_affected": "0.16.0"}), True, ""),
        (in_range({"introduced": "0"}, {"last_affected": "0.15.0"}), False, ""),
        (
            in_range({"fixed": "0.10"}, {"introduced": "0"}, {"introduced": "0.15"}, {"fixed": "0.18"}),
            True,
            "0.18",
        ),
        (advisory(versions=["0.16.0"]) | {"withdrawn": "2026-01-01T00:00:00Z"}, False, ""),
        (advisory(ranges=[{"type": "GIT", "events": [{"introduced": "0"}]}]), False, ""),
    ],
)
def test_an_advisory_affects_the_versions_that_it_names(
    record: dict[str, Any], affects: bool, fixed: str
) -> None:
    found = list(audit.findings(record, {"h11": {"0.16.0"}}))
    assert [(one.package, one.fixed) for one in found] == ([("h11", fixed)] if affects else [])


def test_the_audit_reads_a_folder_and_a_zip_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (version,) = audit.pinned_versions()["h11"]
    record = json.dumps(advisory(versions=[version]))
    folder = tmp_path / "advisories"
    folder.mkdir()
    (folder / "PYSEC-0.json").write_text(record)
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("PYSEC-0.json", record)
    for path in (folder, archive):
        assert audit.main([str(path)]) == 1
        assert f"h11 {version}: PYSEC-0, no fixed version: a defect" in capsys.readouterr().out
    (folder / "PYSEC-0.json").write_text(json.dumps(advisory(versions=["0.0.1"])))
    assert audit.main([str(folder)]) == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"id": 1}', b'{"id": "x", "affected": 3}', b'{"id": "x", "affected": [3]}'],
)
def test_damaged_advisories_are_an_error_and_not_a_pass(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.json").write_bytes(content)
    assert audit.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("audit: ")


def test_no_advisories_are_an_error_and_not_a_pass(tmp_path: Path) -> None:
    assert audit.main([str(tmp_path)]) == 2
    assert audit.main([str(tmp_path / "missing")]) == 2
    (tmp_path / "all.zip").write_bytes(b"no zip file")
    assert audit.main([str(tmp_path / "all.zip")]) == 2
