"""Write bills of materials (CycloneDX 1.6, JSON) of the wheel and of the images, and list the licences of packages.

    python -m scripts.sbom wheel                      build/sbom/wheel.cdx.json
    python -m scripts.sbom region kafka spark testcontainers
                                                      of images that compose/images.sh has built; needs Docker

Python packages come from requirements.lock with their hashes, Java archives from the folder that an image was built
from, and Debian packages from the image itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.markers import Marker

from scripts.lock import ROOT, read_lock, wanted

FOLDER: Final = ROOT / "build" / "sbom"
CONTEXTS: Final = ROOT / "build" / "images"
PRODUCT_EXTRAS: Final = ("kafka", "security", "cli", "scenarios", "spark", "embedded")
"""The extras that users install; the others are for tests and benchmarks."""
IMAGE_EXTRAS: Final = {
    "region": ("kafka", "security"),
    "testcontainers": ("kafka", "security", "cli"),
    "kafka": (),
    "spark": ("kafka", "spark"),
}
"""The extras of each image with Python packages, as in compose/images.sh and its Dockerfiles."""
CLASSIFIERS: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
SPELLINGS: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache License v2.0": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "MIT License": "MIT",
}
"""SPDX identifiers of licences that packages spell in their own way."""
UNKNOWN_LICENCE: Final = "unknown"


class NotBuilt(Exception):
    """An image, or the folder that it was built from, does not exist."""


def licence_of(package: str) -> str:
    """Return the licence of an installed package as an SPDX expression, or as its metadata spells it; UNKNOWN_LICENCE
    for a package that is not installed or states none."""
    try:
        about = metadata.metadata(package)
    except metadata.PackageNotFoundError:
        return UNKNOWN_LICENCE
    stated = about.get("License-Expression") or about.get("License") or ""
    if stated and "\n" not in stated:
        return SPELLINGS.get(stated, stated)
    classifiers = [
        one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or () if "License ::" in one
    ]
    return " OR ".join(CLASSIFIERS.get(one, one) for one in classifiers) or UNKNOWN_LICENCE


def python_packages(extras: Iterable[str], *, every_platform: bool = True) -> Iterator[Component]:
    """Yield the packages that geoemu with these extras requires, as the lock pins them: for every platform, or for this
    one only."""
    locked = read_lock()
    for name in wanted(extras, locked):
        for version, block in _versions(name, locked[name]):
            if not (every_platform or _is_for_this_platform(block)):
                continue
            licence = licence_of(name)
            yield Component(
                name=name,
                version=version,
                type=ComponentType.LIBRARY,
                purl=PackageURL("pypi", name=name, version=version),
                bom_ref=f"pypi/{name}@{version}",
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in _hashes(block)],
                licenses=() if licence == UNKNOWN_LICENCE else (LicenseFactory().make_from_string(licence),),
            )


def _versions(name: str, block: str) -> Iterator[tuple[str, str]]:
    """Yield each pinned version of a package, which may differ between versions of Python, with its lines."""
    for match in re.finditer(
        rf"^{re.escape(name)}==([^\s;]+).*?(?=^{re.escape(name)}==|\Z)", block, re.M | re.S | re.I
    ):
        yield match[1], match[0]


def _is_for_this_platform(block: str) -> bool:
    marker = re.match(r"\S+ ; ([^\\\n]+)", block)
    return marker is None or Marker(marker[1].strip()).evaluate()


def _hashes(block: str) -> list[str]:
    return sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", block))


def java_archives(folder: Path) -> Iterator[Component]:
    """Yield the Java archives below a folder, by their Maven coordinates where they state them."""
    for path in sorted(folder.rglob("*.jar")):
        group, name, version = _coordinates(path)
        yield Component(
            name=name,
            group=group or None,
            version=version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("maven", group, name, version)
            if group
            else PackageURL("generic", name=name, version=version),
            bom_ref=f"jar/{path.name}",
            hashes=[
                HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(path.read_bytes()).hexdigest())
            ],
        )


def _coordinates(path: Path) -> tuple[str, str, str]:
    """Return (group, name, version) of an archive: those of its own `pom.properties`, or of its file name. An archive
    that includes others has several, of which none may be its own."""
    name, version = re.fullmatch(r"(.+?)(?:-(\d[^/]*))?", path.stem).groups(default="")  # type: ignore[union-attr]
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            if re.fullmatch(rf"META-INF/maven/[^/]+/{re.escape(name)}/pom\.properties", entry):
                return entry.split("/")[2], name, version
    return "", name, version


def debian_packages(image: str) -> Iterator[Component]:
    """Yield the Debian packages of an image. Raises NotBuilt for a missing image."""
    form = "${Package}\t${Version}\t${Architecture}\n"
    command = (
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "--entrypoint",
        "dpkg-query",
        image,
        "-W",
        "-f",
        form,
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuilt(f"{image}: {done.stderr.strip()}")
    for line in done.stdout.splitlines():
        name, version, architecture = line.split("\t")
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("deb", "debian", name, version, {"arch": architecture}),
            bom_ref=f"deb/{name}@{version}:{architecture}",
        )


def bill(name: str, version: str, type_: ComponentType, components: Iterable[Component]) -> Bom:
    """Return the bill of materials of one artefact."""
    bom = Bom(components=components)
    bom.metadata.component = Component(
        name=name,
        version=version,
        type=type_,
        bom_ref=f"geoemu/{name}",
        licenses=(LicenseFactory().make_from_string("Apache-2.0"),),
    )
    bom.register_dependency(bom.metadata.component, bom.components)
    return bom


def tag_of(image: str) -> str:
    """Return the tag under which compose/images.sh builds an image."""
    if image == "testcontainers":
        return tag_of("region") + "-testcontainers"
    return os.environ.get(f"GEOEMU_{image.upper()}_IMAGE", f"geoemu-{image}:local")


def bill_of_wheel() -> Bom:
    return bill("geoemu", _version(), ComponentType.APPLICATION, python_packages(PRODUCT_EXTRAS))


def bill_of_image(image: str) -> Bom:
    """Return the bill of materials of an image: region, kafka, spark or testcontainers. NotBuilt if it is missing."""
    components = [*debian_packages(tag_of(image)), *java_archives(CONTEXTS / image)]
    if extras := IMAGE_EXTRAS[image]:
        components += python_packages(extras, every_platform=False)
    return bill(tag_of(image), _version(), ComponentType.CONTAINER, components)


def _version() -> str:
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


def licences() -> Iterator[tuple[str, str, str]]:
    """Yield (package, versions, licence) of each package that users install. Packages of other platforms are left
    out."""
    locked = read_lock()
    for name in wanted(PRODUCT_EXTRAS, locked):
        versions = " / ".join(version for version, _ in _versions(name, locked[name]))
        if (licence := licence_of(name)) != UNKNOWN_LICENCE:
            yield name, versions, licence


def main(artefacts: list[str]) -> int:
    if not artefacts or set(artefacts) - {"wheel", *IMAGE_EXTRAS}:
        print(f"usage: python -m scripts.sbom {{wheel|{'|'.join(IMAGE_EXTRAS)}}}...", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for artefact in artefacts:
        try:
            bom = bill_of_wheel() if artefact == "wheel" else bill_of_image(artefact)
        except NotBuilt as problem:
            print(f"sbom: {problem}; type: bash compose/images.sh {artefact}", file=sys.stderr)
            return 2
        path = FOLDER / f"{artefact}.cdx.json"
        path.write_text(JsonV1Dot6(bom).output_as_string(indent=1) + "\n")
        print(f"{path.relative_to(ROOT)}: {len(bom.components)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
