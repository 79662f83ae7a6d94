"""The table of faults: what each does, how it ends, the test of each runtime, and how random faults draw it.

docs/reference/faults.md is generated from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emulator.config.link_profiles import PROFILES
from emulator.model.machine import HEALTHY
from emulator.runtimes.fault_draws import (
    FaultDraw,
    frame_draw,
    link_draw,
    object_draw,
    random_bandwidth,
    random_disk,
    random_flap,
    random_latency,
    random_offset,
    random_stall,
    region_draw,
)

RUNTIME_NAMES = ("process", "compose", "simulated")


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One kind of fault, as docs/reference/faults.md shows it."""

    summary: str
    ended_by: str
    """Verb that ends it; empty: it is over at once, or cannot be ended."""
    cells: Mapping[str, str]
    """Runtime -> the test that shows the fault there (`tests/….py::name`), or the reason why it has none."""
    draw: FaultDraw | None = None
    """How random faults draw it; None: they do not."""


_PROCESS = "tests/runtimes/test_process.py::"
_PROCESS_LINKS = "tests/runtimes/test_link_faults.py::"
_STOPPED_PROCESS = (
    _PROCESS + "test_a_killed_region_is_killed_a_stopped_one_stopped_and_both_come_back_on_their_ports"
)
_SIMULATED_REGION = (
    "tests/simulation/test_region_faults.py::test_a_region_stops_pauses_restarts_and_is_lost_in_virtual_time"
)
_COMPOSE = "tests/runtimes/test_compose.py::"
_SIMULATED = "tests/simulation/test_link_faults.py::"
_MACHINE_PROCESS = "tests/runtimes/test_machine_faults.py::"
_MACHINE_SIMULATED = "tests/simulation/test_machine_faults.py::"
_SAME_STORE = (
    "the region's program injects it between the broker and its log in Kafka, as in a process before SQLite"
)
_SAME = "the region's program emulates it as in a process"
"""Reason why a fault of links has no separate test in containers."""


def _emulated(summary: str, process: str, simulated: str, draw: FaultDraw | None = None) -> FaultRow:
    """Return the row of a fault of links that the region's program emulates."""
    cells = {"process": _PROCESS_LINKS + process, "compose": _SAME, "simulated": _SIMULATED + simulated}
    return FaultRow(summary, "heal", cells, draw)


def _of_frames(summary: str) -> FaultRow:
    """Return the row of a fault of single frames."""
    cells = {
        "process": "tests/runtimes/test_frame_faults.py::"
        "test_messages_arrive_once_and_in_order_whatever_the_link_loses",
        "compose": _COMPOSE + "test_messages_that_a_link_loses_arrive_once_and_in_order",
        "simulated": "tests/simulation/test_frame_faults.py::test_a_scenario_waits_until_the_faults_acted",
    }
    return FaultRow(summary, "heal", cells, frame_draw(1, 2))


FAULTS: Mapping[str, FaultRow] = {
    "kill": FaultRow(
        "SIGKILL a region; unflushed state is lost.",
        "start",
        {
            "process": _STOPPED_PROCESS,
            "compose": _COMPOSE + "test_a_killed_region_is_seen_to_be_and_comes_back_with_what_it_had",
            "simulated": "tests/simulation/test_world.py::test_a_killed_region_comes_back_with_what_it_acknowledged",
        },
        region_draw(3, 4),
    ),
    "stop": FaultRow(
        "Stop a region gracefully.",
        "start",
        {
            "process": _STOPPED_PROCESS,
            "compose": _COMPOSE + "test_every_verb_may_come_twice",
            "simulated": _SIMULATED_REGION,
        },
        region_draw(1, 1),
    ),
    "restart": FaultRow(
        "Stop a region gracefully and start it again.",
        "",
        {
            "process": _PROCESS + "test_a_lost_region_is_lost_until_it_is_started",
            "compose": _COMPOSE + "test_every_verb_may_come_twice",
            "simulated": _SIMULATED_REGION,
        },
        region_draw(1, 1),
    ),
    "pause": FaultRow(
        "Freeze a region: connections stay open, and it sends nothing.",
        "resume",
        {
            "process": _PROCESS
            + "test_a_region_that_was_paused_during_a_cut_applies_the_cut_when_it_resumes",
            "compose": _COMPOSE + "test_a_paused_region_is_seen_to_be_and_goes_on",
            "simulated": _SIMULATED_REGION,
        },
        region_draw(2, 3, stops_clock=True),
    ),
    "lose": FaultRow(
        "SIGKILL a region that is not expected back.",
        "",
        {
            "process": _PROCESS + "test_a_lost_region_is_lost_until_it_is_started",
            "compose": _COMPOSE + "test_every_verb_may_come_twice",
            "simulated": _SIMULATED_REGION,
        },
    ),
    "power_loss": FaultRow(
        "Kill a region as a power loss of its machine does: what no completed sync covers is dropped.",
        "start",
        {
            "process": _MACHINE_PROCESS + "test_a_power_loss_loses_nothing_that_was_acknowledged",
            "compose": "as kill: a region on Kafka keeps nothing on its own disk, and Kafka acknowledges before it "
            "syncs; its replicas, not its disks, keep what it acknowledged",
            "simulated": _MACHINE_SIMULATED
            + "test_a_power_loss_keeps_what_was_acknowledged_and_nothing_else",
        },
        region_draw(0, 2),
    ),
    "disk": FaultRow(
        "Make a region's disk, or its log in Kafka, slow, full or failing. The configuration store of a cluster is a "
        "service of its own, on another disk.",
        "disk … healthy",
        {
            "process": _MACHINE_PROCESS + "test_a_disk_fault_stops_publishes_and_ends_without_a_restart",
            "compose": _SAME_STORE,
            "simulated": _MACHINE_SIMULATED
            + "test_a_publish_waits_while_the_disk_refuses_it_and_is_stored_once_afterwards",
        },
        # A region does not become ready on a disk that is full or failing, so the disk claims the region.
        object_draw(0, 2, random_disk, {"is": HEALTHY.state}, "region"),
    ),
    "skew": FaultRow(
        "Offset a region's wall clock, and let it drift. Timers are unaffected.",
        "skew … 0ms",
        {
            "process": _MACHINE_PROCESS + "test_a_clock_keeps_its_offset_and_its_drift_over_a_restart",
            "compose": "tests/runtimes/test_compose_metadata.py::"
            "test_the_verifier_checks_shared_metadata_after_a_clock_skew_and_a_lost_store_in_containers",
            "simulated": _MACHINE_SIMULATED + "test_a_clock_that_drifts_moves_away_while_timers_do_not",
        },
        object_draw(0, 2, random_offset, {"by": "0ms"}, "clock"),
    ),
    "cut": FaultRow(
        "Drop all traffic of links: new connections fail, open ones stall.",
        "heal",
        {
            "process": _PROCESS_LINKS + "test_clients_recover_from_each_fault_of_their_link",
            "compose": _COMPOSE
            + "test_a_link_that_is_cut_one_way_lets_nothing_pass_that_way_until_it_is_healed",
            "simulated": _SIMULATED
            + "test_a_client_whose_link_is_cut_times_out_and_its_messages_arrive_once_after_heal",
        },
        link_draw(3, 3),
    ),
    "hold": _emulated(
        "Queue the traffic of links.",
        "test_clients_recover_from_each_fault_of_their_link",
        "test_what_a_held_link_queues_arrives_after_heal",
        link_draw(2, 2),
    ),
    "latency": FaultRow(
        "Delay the traffic of links, with jitter.",
        "heal",
        {
            "process": _PROCESS_LINKS + "test_clients_recover_from_each_fault_of_their_link",
            "compose": _COMPOSE + "test_a_message_takes_at_least_the_latency_that_its_link_was_given",
            "simulated": _SIMULATED + "test_the_latency_of_a_client_link_is_added_in_each_direction",
        },
        link_draw(2, 2, random_latency),
    ),
    "bandwidth": _emulated(
        "Limit the bandwidth of links; towards clients: slow readers.",
        "test_clients_recover_from_each_fault_of_their_link",
        "test_a_slow_reader_receives_everything_and_other_clients_are_not_delayed",
        link_draw(1, 1, random_bandwidth),
    ),
    "stall": _emulated(
        "Stall links at intervals, as packet loss does to TCP.",
        "test_clients_recover_from_each_fault_of_their_link",
        "test_a_stalled_link_delays_what_is_sent_during_a_stall",
        link_draw(1, 1, random_stall),
    ),
    "flap": _emulated(
        "Cut links for a part of each period.",
        "test_clients_recover_from_each_fault_of_their_link",
        "test_regions_replicate_over_a_flapping_link",
        link_draw(1, 2, random_flap),
    ),
    "profile": _emulated(
        "Give links the latency, jitter, bandwidth and stalls of a named profile.",
        "test_clients_recover_from_each_fault_of_their_link",
        "test_lossy_wifi_has_the_published_round_trips",
        link_draw(1, 1, lambda random: {"is": random.choice(sorted(PROFILES))}),
    ),
    "reset": _emulated(
        "Reset the open connections of links (TCP RST).",
        "test_clients_recover_from_each_fault_of_their_link",
        "test_connections_that_are_reset_are_opened_again_and_nothing_is_lost",
        link_draw(1, 2, at_once=True),
    ),
    "half_open": _emulated(
        "Let the open connections of links stay open and carry nothing; new ones work.",
        "test_clients_recover_from_each_fault_of_their_link",
        "test_a_half_open_connection_is_silent_while_new_ones_work",
        link_draw(1, 1),
    ),
    "drop": _of_frames("Drop the n-th command, receipt or marker of one name on a link."),
    "delay": _of_frames("Delay it; later ones overtake it."),
    "duplicate": _of_frames("Send it twice."),
    "reorder": _of_frames("Swap it with the next one of the connection."),
}
"""All kinds of faults, by verb."""
