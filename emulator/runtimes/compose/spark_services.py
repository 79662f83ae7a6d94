"""The Compose services of a Spark cluster beside a run: a master, two workers, and `spark-submit`.

They start only with their profile: `docker compose run --rm spark-submit` starts the others, too. All have the image of
the verdict's service and the run directory under the same path, read-only. No port is published.
"""

from __future__ import annotations

from collections.abc import Sequence

MASTER_SERVICE, WORKER_SERVICE, SUBMIT_SERVICE = "spark-master", "spark-worker", "spark-submit"
PROFILE = "spark"
WORKERS = 2
_MASTER = f"spark://{MASTER_SERVICE}:7077"

_COMMON = """\
x-spark: &spark
  profiles: [{profile}] # only when asked for: docker compose run --rm {submit}
  image: {image}
  user: "{user}"
  init: true
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  pids_limit: 512
  restart: "no"
  networks: [regions]
  labels: {{ {label} }}

x-spark-environment: &spark-environment
  SPARK_DAEMON_MEMORY: 256m
  SPARK_DAEMON_JAVA_OPTS: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
  SPARK_WORKER_DIR: /tmp/worker # the only folder that can be written
"""

_SERVICES = """\
  {master}:
    <<: *spark
    entrypoint: [/geoemu/bin/start, /geoemu/lib/pyspark/bin/spark-class]
    command: [org.apache.spark.deploy.master.Master, --host, {master}, --port, "7077"]
    environment: *spark-environment
    mem_limit: 768m
    healthcheck:
      test: [CMD, bash, -c, "exec 3<>/dev/tcp/{master}/7077"]
      interval: 2s
      timeout: 3s
      retries: 30
  {worker}:
    <<: *spark
    entrypoint: [/geoemu/bin/start, /geoemu/lib/pyspark/bin/spark-class]
    command: [org.apache.spark.deploy.worker.Worker, "{url}", --cores, "1", --memory, 1g]
    environment: *spark-environment
    mem_limit: 2g
    deploy: {{ replicas: {workers} }}
    volumes: [{evidence}]
    depends_on: {{ {master}: {{ condition: service_healthy }} }}
  {submit}:
    <<: *spark
    entrypoint:
      - /geoemu/bin/start
      - /geoemu/lib/pyspark/bin/spark-submit
      - --master={url}
      - --conf=spark.log.level=ERROR
      - --conf=spark.executor.memory=768m
      - --driver-java-options=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
      # The default, zstd, loads a library from /tmp, from which nothing can be executed.
      - --conf=spark.shuffle.mapStatus.compression.codec=lz4
    command: {command}
    mem_limit: 3g
    volumes: [{evidence}, {report}]
    depends_on:
{depends}
"""


def common(image: str, user: str, label: str) -> str:
    """Return the top-level parts that the services share. `image` and `label` are quoted already."""
    return _COMMON.format(profile=PROFILE, submit=SUBMIT_SERVICE, image=image, user=user, label=label)


def services(command: str, evidence: str, report: str, kafkas: Sequence[str]) -> str:
    """Return the services. `command`: program of `spark-submit` and its arguments; `kafkas`: services that it reads.
    All values are quoted already."""
    conditions = {MASTER_SERVICE: "service_healthy", WORKER_SERVICE: "service_started"}
    conditions |= dict.fromkeys(kafkas, "service_healthy")
    return (
        _SERVICES.format(
            master=MASTER_SERVICE,
            worker=WORKER_SERVICE,
            submit=SUBMIT_SERVICE,
            url=_MASTER,
            workers=WORKERS,
            command=command,
            evidence=evidence,
            report=report,
            depends="\n".join(f"      {name}: {{ condition: {one} }}" for name, one in conditions.items()),
        ).rstrip("\n")
        + "\n"
    )
