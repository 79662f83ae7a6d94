"""Five regions with random kills, cuts and lost markers, and a consumer that fails over again and again: no message is
skipped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.test_cli import geoemu
from tests.drills.test_scenarios_on_processes import folder

__all__ = ["folder"]
pytestmark = [pytest.mark.real, pytest.mark.slow]

REGIONS = ("us", "eu", "ap", "sa", "af")
ROUNDS = int(os.environ.get("GEOEMU_FAIL_OVERS", "20"))
"""Number of fail-overs; each takes about half a minute."""
FAULTS_SECONDS = 20
TOPOLOGY = {
    "name": "five-regions",
    "clusters": ["world"],
    "links": {"defaults": {"latency_ms": 20, "jitter_ms": 2}},
    "namespaces": {"public/default": {"regions": "all", "deduplication": True}},
}
CLUSTER = {"regions": {region: {"service_port": 0, "admin_port": 0} for region in REGIONS}}


def _fail_over(number: int) -> list[dict[str, Any]]:
    """Return the steps of one fail-over: random faults, then the consumer's region is killed, and the consumer
    continues in the next one."""
    source, target = (REGIONS[(number + offset) % len(REGIONS)] for offset in (0, 1))
    return [
        {"chaos": {"for": f"{FAULTS_SECONDS}s", "profile": "harsh", "seed": number + 1}},
        {"wait_until": {"subscription": "billing", "exists_in": target, "within": "90s"}},
        {"plan": {"subscription": "billing", "from": source, "to": target}},
        {"kill": source},
        {"move": {"consumer": "billing", "to": target, "within": "30s"}},
        {"wait_until": {"consumer": "billing", "received_more": 50, "within": "90s"}},
        {"start": source},
    ]


def _scenario(rounds: int) -> dict[str, Any]:
    steps = [step for number in range(rounds) for step in _fail_over(number)]
    return {
        "name": "five-regions",
        "topic": "persistent://public/default/orders",
        "actors": {
            "producers": [
                {"name": f"orders-{region}", "region": region, "rate_per_second": 10} for region in REGIONS
            ],
            "consumers": [
                {"name": "billing", "region": REGIONS[0], "subscription": "billing", "replicated": True}
            ],
        },
        "steps": [
            {"begin": "all"},
            *steps,
            {"finish": {"actors": "producers", "within": "90s"}},
            {"drain": "90s"},
        ],
    }


def test_no_fail_over_among_five_regions_skips_a_message_and_every_plan_is_kept(folder: Path) -> None:
    (folder / "clusters").mkdir()
    for path, content in (
        ("topology.yaml", TOPOLOGY),
        ("clusters/world.yaml", CLUSTER),
        ("scenario.yaml", _scenario(ROUNDS)),
    ):
        (folder / path).write_text(yaml.safe_dump(content, sort_keys=False))
    done = geoemu("run", "scenario.yaml", "--engine", "embedded", folder=folder, seconds=ROUNDS * 120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plans compared with the fail-over that followed" in done.stdout
