"""Switches to upstream's behaviour: declared once, documented, rejected if unknown, obeyed by a region."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.config.compatibility import CHOICES, SWITCHES, Compatibility, table
from emulator.config.region import RegionConfig
from tests.broker.admin.served import served

ROOT = Path(__file__).parents[2]
TOPIC = "persistent://public/default/orders"


def test_the_protocol_page_has_the_table_of_the_switches() -> None:
    assert table() in (ROOT / "docs" / "PROTOCOL.md").read_text()


def test_every_switch_is_read_somewhere_in_the_broker_or_the_core() -> None:
    """A switch that no code reads would have no effect."""
    code = "".join(
        path.read_text()
        for folder in ("broker", "core")
        for path in (ROOT / "emulator" / folder).rglob("*.py")
    )
    for name in SWITCHES:
        assert f'follows_upstream("{name}")' in code


@pytest.mark.parametrize("chosen", [{"snapshots": "upstream"}, {"overlapping_batches": "sometimes"}])
def test_what_is_no_switch_or_no_choice_is_refused(chosen: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="compatibility"):
        Compatibility(chosen)


def test_a_region_gets_the_switches_and_none_is_set_by_default() -> None:
    config = RegionConfig("us", "test", compatibility={"overlapping_batches": "upstream"})
    assert RegionConfig.from_json(config.to_json()) == config
    assert Compatibility(config.compatibility).follows_upstream("overlapping_batches")
    assert not Compatibility({}).follows_upstream("overlapping_batches")
    assert CHOICES[0] == "proposal"


@pytest.mark.real
def test_topics_of_a_region_obey_the_choice() -> None:
    pulsar = pytest.importorskip("pulsar")
    for chosen, drops in (({"overlapping_batches": "upstream"}, True), ({}, False)):
        with served(compatibility=chosen) as us:
            quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            client = pulsar.Client(f"pulsar://127.0.0.1:{us.service_port}", logger=quiet)
            client.create_producer("orders").send(b"hello")
            topic = us.region.directory.serving[TOPIC]
            assert topic.state.deduplication.drops_overlaps is drops
            client.close()
