"""Checks of the programs that geoemu uses: engines of verdicts, Docker and Compose, images, Kafka."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from emulator.cli.diagnosis.finding import Finding, Level
from emulator.config.topology import Topology
from emulator.errors import GeoemuError, Refused
from emulator.runtimes.compose.plan import ComposeSettings, settings_from

if TYPE_CHECKING:
    from emulator.runtimes.docker_engine import DockerEngine


def check_engines(runtime: str, topology: Topology | None) -> Iterator[Finding]:
    """Yield the findings about engines and containers. `runtime`: that of the run. `topology` None: it is unknown."""
    yield from check_verdicts()
    yield from check_containers(runtime, topology)
    if topology is not None and runtime == "process" and needs_kafka(topology):
        yield check_kafka()


def check_verdicts() -> Iterator[Finding]:
    """Yield a finding for each engine. A missing engine is a problem only if the other one is missing, too."""
    from spark_jobs.engines.starting import ENGINES, why_not

    problems = {name: why_not(name) for name in ENGINES}
    level: Level = "problem" if all(problems.values()) else "note"
    for name, problem in problems.items():
        if problem is None:
            yield Finding(name, "ok", f"verdicts can be computed by the engine {name}")
        else:
            reason, _, fix = problem.removesuffix(".").partition(": ")
            yield Finding(name, level, reason, fix)


def check_containers(runtime: str, topology: Topology | None) -> Iterator[Finding]:
    """Yield the findings about Docker, Compose and images: problems for a run in containers, otherwise notes."""
    level: Level = "problem" if runtime == "compose" else "note"
    if find_spec("docker") is None:
        yield Finding("docker", level, "the package docker is missing", "pip install 'geoemu[cli]'")
        return
    from emulator.runtimes.compose.command import compose_command
    from emulator.runtimes.docker_engine import DockerEngine

    try:
        engine = DockerEngine()
    except Refused as refusal:
        yield _refused("docker", level, refusal)
    else:
        yield Finding("docker", "ok", "a Docker engine responds")
        if runtime == "compose":
            yield from _check_images(engine, topology)
    try:
        yield Finding("compose", "ok", f"Docker Compose v2: {' '.join(compose_command())}")
    except Refused as refusal:
        yield _refused("compose", level, refusal)


def _check_images(engine: DockerEngine, topology: Topology | None) -> Iterator[Finding]:
    from emulator.runtimes.image_sources import stale_warning

    try:
        settings = settings_from(os.environ)
        for kind, image in _images(settings, topology):
            if not engine.has_image(image):
                fix = (
                    f"`bash compose/images.sh {kind}` in a checkout"
                    if image.endswith(":local")
                    else f"docker pull {image}"
                )
                yield Finding("images", "problem", f"the image {image} is missing", fix)
            elif stale := stale_warning(kind, image, engine.image_labels(image)):
                sentence, _, fix = stale.partition(": ")
                yield Finding("images", "note", sentence, fix)
            else:
                yield Finding("images", "ok", f"the image {image} is there")
    except GeoemuError as problem:
        yield Finding("images", "problem", str(problem), "correct the variable or the engine, and try again")


def _images(settings: ComposeSettings, topology: Topology | None) -> list[tuple[str, str]]:
    images = [("region", settings.region_image)]
    return images + ([("kafka", settings.kafka_image)] if topology and needs_kafka(topology) else [])


def needs_kafka(topology: Topology) -> bool:
    """Return whether geoemu has to start a Kafka for a region."""
    return any(one.log.backend == "kafka" and not one.log.bootstrap_servers for one in topology.regions)


def check_kafka() -> Finding:
    """Check the Kafka of regions that run as processes: Java, and its jars or Maven, which downloads them."""
    from emulator.runtimes.kafka_server import find_jars, jars_folder

    if shutil.which("java") is None:
        sentence = "the topology stores logs in Kafka, which needs Java, and there is none on the PATH"
        return Finding(
            "kafka", "problem", sentence, "install Java 17 or newer, or use `log: {backend: sqlite}`"
        )
    if find_jars() is not None:
        return Finding("kafka", "ok", f"Kafka's jars are in {jars_folder()}")
    sentence = f"Kafka's jars are not in {jars_folder()}"
    if shutil.which("mvn") is None:
        fix = "install Maven (`sudo apt-get install maven`), or set GEOEMU_KAFKA_JARS to their folder"
        return Finding("kafka", "problem", f"{sentence}, and Maven, which downloads them, is missing", fix)
    return Finding("kafka", "note", sentence, "nothing: the first run downloads 44 MB with Maven")


def _refused(subject: str, level: Level, refusal: Refused) -> Finding:
    """Return the finding of a refusal, whose message is `reason: fix`."""
    reason, _, fix = str(refusal).partition(": ")
    return Finding(subject, level, reason, fix or "see docs/CONTAINERS.md")
