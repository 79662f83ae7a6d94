"""Render the configuration of Prometheus and Grafana for a run in containers, without side effects.

Prometheus and Grafana are services of the Compose file that `geoemu render --dashboards` writes. They start only with
their Compose profile:

    docker compose --profile dashboards up --detach --wait

Prometheus scrapes the regions under the job name `broker`, which Pulsar's own dashboards expect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

PROFILE: Final = "dashboards"
"""Name of the Compose profile, and of the folder in the run directory."""
PROMETHEUS_SERVICE: Final = "prometheus"
GRAFANA_SERVICE: Final = "grafana"
DASHBOARD_SERVICES: Final = (PROMETHEUS_SERVICE, GRAFANA_SERVICE)
PROMETHEUS_PORT: Final = 9090
PROVISIONING: Final = PurePosixPath("/etc/grafana/provisioning")
BOARDS: Final = PurePosixPath("/var/lib/geoemu-dashboards")
"""Folder of the dashboards in Grafana's container."""
SOURCE_UID: Final = "geoemu"
COLUMNS: Final = 24
"""Number of columns of Grafana's grid."""
PANEL_WIDTH: Final = 8
PANEL_HEIGHT: Final = 7


class Panel(NamedTuple):
    """A Grafana panel that plots one query."""

    title: str
    query: str
    legend: str
    unit: str = "short"


PANELS: Final = (
    Panel("Published, messages/s", "sum by (cluster) (pulsar_rate_in)", "{{cluster}}"),
    Panel("Delivered, messages/s", "sum by (cluster) (pulsar_rate_out)", "{{cluster}}"),
    Panel("Published, bytes/s", "sum by (cluster) (pulsar_throughput_in)", "{{cluster}}", "Bps"),
    Panel(
        "Links that are up",
        "min by (cluster, remote_cluster) (geoemu_link_connected)",
        "{{cluster}} -> {{remote_cluster}}",
    ),
    Panel(
        "Replication backlog, entries",
        "sum by (cluster, remote_cluster) (pulsar_replication_backlog)",
        "{{cluster}} -> {{remote_cluster}}",
    ),
    Panel(
        "Sent to another region, messages/s",
        "sum by (cluster, remote_cluster) (pulsar_replication_rate_out)",
        "{{cluster}} -> {{remote_cluster}}",
    ),
    Panel(
        "Largest backlogs, entries",
        "topk(10, sum by (cluster, topic) (pulsar_msg_backlog))",
        "{{cluster}} {{topic}}",
    ),
    Panel(
        "Sent and not acknowledged, messages",
        "topk(10, sum by (cluster, topic, subscription) (pulsar_subscription_unacked_messages))",
        "{{cluster}} {{topic}} {{subscription}}",
    ),
    Panel("Logs, bytes", "sum by (cluster) (pulsar_storage_size)", "{{cluster}}", "bytes"),
    Panel("Producers", "sum by (cluster) (pulsar_producers_count)", "{{cluster}}"),
    Panel("Consumers", "sum by (cluster) (pulsar_consumers_count)", "{{cluster}}"),
    Panel("Connections", "sum by (cluster) (pulsar_active_connections)", "{{cluster}}"),
    Panel(
        "Subscription snapshots completed, /s",
        "sum by (cluster) (rate(geoemu_snapshots_completed_total[1m]))",
        "{{cluster}}",
    ),
    Panel("Open transactions", "sum by (cluster) (pulsar_txn_active_count)", "{{cluster}}"),
    Panel("Regions that respond", 'sum by (instance) (up{job="broker"})', "{{instance}}"),
)


def prometheus_file(targets: Mapping[str, str], *, interval_seconds: int = 5) -> str:
    """Return prometheus.yml. `targets` contains the `host:port` of each region."""
    found = [
        {"targets": [target], "labels": {"instance": region}} for region, target in sorted(targets.items())
    ]
    interval = f"{interval_seconds}s"
    return _yaml(
        {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [{"job_name": "broker", "static_configs": found}],
        }
    )


def grafana_source_file() -> str:
    """Return the file that declares Prometheus as Grafana's data source."""
    source = {
        "name": "regions",
        "uid": SOURCE_UID,
        "type": "prometheus",
        "access": "proxy",
        "url": f"http://{PROMETHEUS_SERVICE}:{PROMETHEUS_PORT}",
        "isDefault": True,
    }
    return _yaml({"apiVersion": 1, "datasources": [source]})


def grafana_boards_file() -> str:
    """Return the file that declares the folder of Grafana's dashboards. Further dashboards in it are shown, too."""
    provider = {"name": "geoemu", "type": "file", "options": {"path": str(BOARDS)}}
    return _yaml({"apiVersion": 1, "providers": [provider]})


def board(name: str) -> str:
    """Return the dashboard of the run `name`, as JSON."""
    panels = [_panel(index, panel) for index, panel in enumerate(PANELS)]
    return (
        json.dumps(
            {
                "uid": "geoemu-regions",
                "title": f"Regions of {name}",
                "refresh": "5s",
                "time": {"from": "now-15m", "to": "now"},
                "schemaVersion": 39,
                "panels": panels,
            },
            indent=1,
        )
        + "\n"
    )


def _panel(index: int, panel: Panel) -> dict[str, Any]:
    panels_per_row = COLUMNS // PANEL_WIDTH
    source = {"type": "prometheus", "uid": SOURCE_UID}
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {
            "x": index % panels_per_row * PANEL_WIDTH,
            "y": index // panels_per_row * PANEL_HEIGHT,
            "w": PANEL_WIDTH,
            "h": PANEL_HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "datasource": source, "expr": panel.query, "legendFormat": panel.legend}],
    }


def files(name: str, regions: Mapping[str, str]) -> dict[str, str]:
    """Return all configuration files, by path in the folder `PROFILE` of the run directory."""
    return {
        "prometheus.yml": prometheus_file(regions),
        "provisioning/datasources/regions.yaml": grafana_source_file(),
        "provisioning/dashboards/regions.yaml": grafana_boards_file(),
        "boards/regions.json": board(name),
    }


def _yaml(document: Mapping[str, Any]) -> str:
    """Encode a document as JSON, which is valid YAML."""
    return json.dumps(document, indent=1) + "\n"


def services(user: str, images: tuple[str, str], labels: str) -> str:
    """Return the two services of the Compose file. `images`: the quoted names of Prometheus' and Grafana's image."""
    return _SERVICES.format(
        user=user,
        prometheus_image=images[0],
        grafana_image=images[1],
        labels=labels,
        folder=PROFILE,
        provisioning=PROVISIONING,
        boards=BOARDS,
    )


_SERVICES = """\
  prometheus:
    profiles: [dashboards] # only when asked for: docker compose --profile dashboards up --detach
    image: {prometheus_image}
    user: "{user}"
    command:
      - --config.file=/etc/prometheus/prometheus.yml
      - --storage.tsdb.path=/prometheus
    read_only: true
    tmpfs: [/tmp, /prometheus]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    mem_limit: 512m
    pids_limit: 64
    restart: "no"
    networks: [regions]
    labels: {{ {labels} }}
    volumes: ["./{folder}/prometheus.yml:/etc/prometheus/prometheus.yml:ro"]
    ports: ["127.0.0.1:${{GEOEMU_PROMETHEUS_PORT:-9090}}:9090"]

  grafana:
    profiles: [dashboards]
    image: {grafana_image}
    user: "{user}"
    environment:
      GF_AUTH_ANONYMOUS_ENABLED: "true" # any user of this machine may read
      GF_AUTH_DISABLE_LOGIN_FORM: "true"
      GF_ANALYTICS_REPORTING_ENABLED: "false"
      GF_ANALYTICS_CHECK_FOR_UPDATES: "false"
      GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES: "false"
      GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH: {boards}/regions.json
    read_only: true
    tmpfs: [/tmp, /var/lib/grafana, /var/log/grafana]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    mem_limit: 512m
    pids_limit: 256
    restart: "no"
    networks: [regions]
    labels: {{ {labels} }}
    volumes:
      - "./{folder}/provisioning:{provisioning}:ro"
      - "./{folder}/boards:{boards}:ro"
    ports: ["127.0.0.1:${{GEOEMU_GRAFANA_PORT:-3000}}:3000"]
    depends_on: {{ prometheus: {{ condition: service_started }} }}
"""
