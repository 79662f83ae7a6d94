"""How the commands of the pages are run: sessions of blocks that a reader types one after the other, commands that
another test runs, and the reasons why some are not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

README, CONTRIBUTING = "README.md", "CONTRIBUTING.md"
CONTAINERS, LIMITS, SIMULATION, SPARK = (
    f"docs/{name}.md" for name in ("CONTAINERS", "LIMITS", "SIMULATION", "SPARK")
)
CONCEPTS = "docs/concepts/replicated-subscriptions.md"
TOPIC = "persistent://public/default/orders"
CONSUME = f"""python - <<'EOF'
import geoemu, pulsar
with geoemu.attach() as geo:
    client = pulsar.Client(geo.url("us-east"))
    billing = client.subscribe("{TOPIC}", "billing", replicate_subscription_state_enabled=True)
    client.create_producer("{TOPIC}").send(b"1")
    billing.acknowledge(billing.receive(10_000))
    client.close()
    geo.await_replicated("{TOPIC}", "billing")
EOF
"""
_SLOW = pytest.mark.slow
_MUTANT = {"make swarm SEED=18 WITHOUT=seek-ignored": 1}


@dataclass(frozen=True)
class Session:
    """Blocks that a reader types one after the other, in a checkout whose environment is active."""

    name: str
    blocks: tuple[tuple[str, str], ...]
    """(page, heading) of the blocks; those in Python are run, too, and their output is in the file `said`."""
    before: str = ""
    """Commands that the blocks assume to have been typed."""
    after: str = ""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Placeholder of a page -> shell expression of its value."""
    fails: Mapping[str, int] = field(default_factory=dict)
    """Command -> its exit code, which the page explains."""
    expects: tuple[str, ...] = ()
    """Texts that are printed."""
    marks: tuple[pytest.MarkDecorator, ...] = (pytest.mark.long,)
    images: tuple[str, ...] = ()
    """Container images that it needs."""


SESSIONS = (
    Session(
        "first page",
        ((README, "Your own clients"), (README, "What happens if I fail over now?")),
        replaced={
            "pulsar://127.0.0.1:15437": "$(url us-east)",
            "pulsar://127.0.0.1:22170": "$(url eu-central)",
            "receive(5000)": "receive(60_000)",
            "5:120": r"$(sed -n 's/.*(\([0-9]*\),\([0-9]*\),.*/\1:\2/p' said)",
        },
        expects=("b'hello from us-east'", "0 messages"),
    ),
    Session(
        "lost region",
        ((CONCEPTS, "Replicated subscriptions (PIP-33)"), (LIMITS, "A region that stays lost")),
        before=f"geoemu up --detach\n{CONSUME}",
        after="geoemu down",
    ),
    Session("files", ((CONTAINERS, "Grafana dashboards"),)),
    Session("benchmarks", ((CONTRIBUTING, "Run one benchmark"),), marks=(_SLOW,)),
    Session("seeds", ((CONTRIBUTING, "Run one seed"),), fails=_MUTANT, marks=(_SLOW,)),
    Session("workloads", ((SIMULATION, "Simulation"),), fails=_MUTANT, marks=(_SLOW,)),
    Session(
        "simulated scenario",
        ((SIMULATION, "Your own scenario"),),
        before="cp emulator/scenarios/region-failover.yaml my-scenario.yaml; cp topology.yaml my-topology.yaml",
        marks=(_SLOW,),
    ),
    Session(
        "removed safeguard",
        ((SIMULATION, "Example: detecting a removed safeguard"),),
        replaced={"/tmp/doubled": "$PWD/doubled"},
        fails={"make swarm SEED=4 WITHOUT=deduplication-not-rebuilt SHRINK=1": 1},
        expects=("seed 4 violates INV-2 (stored-once)", "the run directory of seed 4, shrunk:"),
        marks=(_SLOW,),
    ),
    Session(
        "limits",
        ((LIMITS, "Losses, outages and limits"), ("docs/concepts/rpo-and-rto.md", "RPO and RTO")),
        expects=("VALID",),
        marks=(_SLOW,),
    ),
    Session(
        "random faults",
        ((README, "Containers, Kafka, simulation"),),
        replaced={"--seeds 1000": "--seeds 50"},  # more of the same: the swarm of .ci/long has 2,000
        expects=("VALID",),
        marks=(_SLOW,),
        images=("region", "kafka", "spark"),
    ),
    Session(
        "containers",
        ((CONTAINERS, "Regions in containers"), (CONTAINERS, "Verifying inside the network")),
        replaced={"docker compose run": "cd .geoemu/current; docker compose run"},
        marks=(_SLOW,),
        images=("region", "kafka", "spark"),
    ),
    Session(
        "engines",
        ((SPARK, "Engines: where verdicts are computed"), (SPARK, "Follow a run")),
        before="geoemu run region-failover --engine embedded",
        marks=(_SLOW,),
    ),
    Session(
        "scenario file",
        ((README, "Quick start"), ("docs/SCENARIOS.md", "The scenario format")),
        expects=("VALID",),
        marks=(_SLOW,),
    ),
)

_OWN, _FAILOVER = "tests/howto/test_own_service.py", "tests/howto/test_client_failover.py"
_TESTCONTAINERS, _SUBMIT = "tests/howto/test_testcontainers.py", "tests/spark_jobs/test_submit.py"
_IN_NETWORK = "tests/runtimes/test_compose_spark.py::test_the_verdict_on_the_cluster_is_that_on_the_host"
_REPLACED = (
    "tests/drills/test_containers.py::"
    "test_a_paused_and_replaced_region_disconnects_its_clients_and_ends_when_it_resumes"
)
_IMAGES, _RUN_IN_CONTAINERS = ".ci/steps.sh::bash compose/images.sh", ".ci/run::make run RUNTIME=compose"
_FIRST_CONTAINER = f"{_TESTCONTAINERS}::test_the_container_of_the_first_page_is_a_region_on_pulsars_ports"
_TESTS = ".ci/run::make test-all"

ELSEWHERE: Mapping[tuple[str, str], str] = {
    (README, "make run RUNTIME=compose"): _RUN_IN_CONTAINERS,
    (README, "make test"): _TESTS,
    (README, "bash compose/images.sh testcontainers"): _IMAGES,
    (README, "docker run --rm *"): _FIRST_CONTAINER,
    (README, "make fast"): "tests/test_compiled_build.py::test_make_fast_and_make_slow",
    (README, "make swarm SEEDS=200 JOBS=2"): ".ci/long::make swarm SEEDS=2000 JOBS=2",
    (CONTRIBUTING, "make setup"): ".ci/steps.sh::make setup",
    (CONTRIBUTING, "make lint"): ".ci/run::make lint",
    (CONTRIBUTING, "make test*"): _TESTS,
    (CONTRIBUTING, ".venv/bin/pytest *"): _TESTS,
    (CONTRIBUTING, "make swarm SEEDS=200 FROM=1 JOBS=2"): ".ci/long::make swarm SEEDS=2000 JOBS=2",
    (SIMULATION, "make swarm SEEDS=200 JOBS=4"): ".ci/long::make swarm SEEDS=2000 JOBS=2",
    (
        "docs/CLIENT_FAILOVER.md",
        "geoemu run billing.yaml",
    ): f"{_FAILOVER}::test_the_client_of_the_page_fails_over_and_back_by_itself",
    (CONTAINERS, "bash compose/images.sh"): _IMAGES,
    (CONTAINERS, "make run RUNTIME=compose"): _RUN_IN_CONTAINERS,
    (CONTAINERS, "geoemu pause us-east"): _REPLACED,
    (CONTAINERS, "docker compose run --detach --no-deps --use-aliases us-east"): _REPLACED,
    (CONTAINERS, "docker unpause *"): _REPLACED,
    (
        "docs/OWN_SERVICE.md",
        "geoemu run billing.yaml",
    ): f"{_OWN}::test_the_scenario_of_the_page_finds_the_bug_and_nothing_else",
    ("docs/PYTEST.md", "*"): "tests/test_pytest_plugin.py::test_the_example_loses_a_region_and_passes",
    (SPARK, "geoemu verify .geoemu/runs/1 --master *"): "tests/spark_jobs/test_cluster.py::--master",
    (SPARK, "python -m spark_jobs.pack *"): f"{_SUBMIT}::test_the_verdict_is_that_of_the_embedded_engine",
    (SPARK, "spark-submit --master URL *"): f"{_SUBMIT}::test_a_program_reads_tables_as_batches_and_streams",
    (SPARK, "export SPARK_HOME=*"): "tests/spark_jobs/spark_cluster.py::spark-class",
    (SPARK, "$SPARK_HOME/bin/spark-class *"): "tests/spark_jobs/spark_cluster.py::spark-class",
    (SPARK, "OPTIONS=*"): f"{_SUBMIT}::test_the_verdict_is_that_of_the_embedded_engine",
    (
        SPARK,
        "spark-submit $OPTIONS * verify *",
    ): f"{_SUBMIT}::test_the_verdict_is_that_of_the_embedded_engine",
    (
        SPARK,
        "spark-submit $OPTIONS * sweep *",
    ): f"{_SUBMIT}::test_sweep_reports_the_worst_first_with_its_exit_code",
    (SPARK, "spark-submit $OPTIONS * export *"): f"{_SUBMIT}::test_executors_write_the_export",
    (SPARK, "docker compose run --rm spark-submit*"): _IN_NETWORK,
    (
        SPARK,
        "docker compose run --rm --volume *",
    ): "tests/runtimes/test_compose_spark.py::test_a_program_reads_kafka_as_batches_and_streams",
    (SPARK, "docker compose --profile spark stop *"): "tests/runtimes/test_compose_spark.py::spark-master",
    ("docs/TESTCONTAINERS.md", "bash compose/images.sh testcontainers"): _IMAGES,
    ("docs/TESTCONTAINERS.md", "docker run --rm *"): _FIRST_CONTAINER,
    (
        "docs/TESTCONTAINERS.md",
        "docker exec CONTAINER geoemu *",
    ): f"{_TESTCONTAINERS}::test_the_python_project_passes",
    (
        "docs/TUTORIAL.md",
        "make run ENGINE=embedded",
    ): "tests/howto/test_fresh_container.py::test_the_tutorial_in_a_fresh_container_takes_less_than_ten_minutes",
    ("docs/TUTORIAL.md", "*"): "tests/test_site.py::test_the_tutorial_ends_with_a_valid_verdict",
}
"""(page, pattern of commands) -> the test, or the line of a file of CI, that runs them."""

REASONS: Mapping[tuple[str, str], str] = {
    (CONTAINERS, "docker run --network * my-application"): "it is a place for the reader's image; "
    "test_compose.py runs a client in such a container",
    (
        CONTAINERS,
        "docker compose --file * --profile dashboards *",
    ): "the images of Prometheus and Grafana are pulled from "
    "a registry; test_dashboards.py runs a real Prometheus on the rendered files",
    (
        CONTAINERS,
        "GEOEMU_PYTHON_BASE=*",
    ): "these base images are pulled from a registry; CI builds on its own",
    (SPARK, "venv-pack *"): "it needs a YARN cluster",
    (SPARK, "spark-submit --master yarn *"): "it needs a YARN cluster",
    (SPARK, "spark-submit --master k8s:*"): "it needs a Kubernetes cluster",
}
"""(page, pattern of commands) -> why no test runs them."""
