"""Verbs that change the states of regions (kill, lose, power-loss, stop, start, restart, pause, resume), and `await`,
which waits for a state of a protocol or a condition of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import typer

from emulator.cli.application import app, open_run_of
from emulator.cli.options import (
    Awaited,
    AwaitedWords,
    Cluster,
    OnlyTopic,
    Regions,
    RunDir,
    Within,
    WithStore,
    protocol_state,
)
from emulator.model.conditions import CONDITIONS
from emulator.model.protocol_events import ProtocolState
from emulator.model.suggestions import nearest
from emulator.runtimes.operator import LOST, refuse_ended

AWAIT_SECONDS = 30.0


@app.command(
    epilog="Example: geoemu kill us-east; several: geoemu kill us-east us-west, or --cluster americas"
)
def kill(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Kill regions with SIGKILL; unflushed state is lost."""
    _change_regions(run_dir, regions, cluster, "kill", "is killed")


@app.command(epilog="Example: geoemu lose us-east; or a whole cluster: geoemu lose --cluster americas")
def lose(
    regions: Regions = None, cluster: Cluster = None, with_store: WithStore = False, run_dir: RunDir = None
) -> None:
    """Kill regions and do not expect them back. The verdict does not wait for them and states the cost; other
    regions keep their messages for them until `replication_clusters` no longer contains them."""
    if with_store and cluster is None:
        raise typer.BadParameter(
            "needs --cluster: regions of a cluster share one store", param_hint="--with-store"
        )
    _change_regions(run_dir, regions, cluster, "lose", f"is {LOST}")
    if with_store and cluster is not None:
        asyncio.run(open_run_of(run_dir).lose_store(cluster))
        print(f"the configuration store of {cluster} is lost")


@app.command(name="power-loss", epilog="Example: geoemu power-loss us-east; then: geoemu start us-east")
def power_loss(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Kill regions as a power loss of their machines does: what no completed sync covers is dropped. A log in Kafka
    is not affected."""
    _change_regions(run_dir, regions, cluster, "power_loss", "has lost power")


@app.command(epilog="Example: geoemu stop us-east")
def stop(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Stop regions gracefully."""
    _change_regions(run_dir, regions, cluster, "stop", "is stopped")


@app.command(epilog="Example: geoemu start us-east")
def start(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Start killed, lost or stopped regions on their stored state, and wait until they are ready."""
    _change_regions(run_dir, regions, cluster, "start", "is ready")


@app.command(epilog="Example: geoemu restart us-east")
def restart(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Stop regions gracefully, start them, and wait until they are ready."""
    _change_regions(run_dir, regions, cluster, "restart", "is ready again")


@app.command(epilog="Example: geoemu pause us-east")
def pause(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Freeze regions: they keep their connections and do not respond."""
    _change_regions(run_dir, regions, cluster, "pause", "is paused")


@app.command(epilog="Example: geoemu resume us-east")
def resume(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Resume paused regions and wait until they are ready."""
    _change_regions(run_dir, regions, cluster, "resume", "is ready again")


@app.command(
    name="await",
    epilog="Example: geoemu await us-east snapshot_round=2 --within 30s; a condition: geoemu await quiet orders",
)
def await_(
    what: Awaited,
    words: AwaitedWords = None,
    topic: OnlyTopic = None,
    within: Within = None,
    run_dir: RunDir = None,
) -> None:
    """Wait until a region has reached a state of a protocol, or the run a condition.

    REGION NAME=NUMBER: the region has counted this many events since it was started; NAME_more: since the command.

    quiet, replicated or snapshot, with [TOPIC [SUBSCRIPTION]]: the condition holds in all regions."""
    typed, seconds = words or [], AWAIT_SECONDS if within is None else within
    if what in CONDITIONS and not any("=" in one for one in typed):
        _await_condition(run_dir, what, typed, topic, seconds)
        return
    if len(typed) != 1 or "=" not in typed[0]:
        hint = nearest(what, CONDITIONS)
        meant = "" if hint is None else f" (did you mean {hint}?)"
        raise typer.BadParameter(
            f"{what!r} is none of the conditions {', '.join(CONDITIONS)}{meant}; a region requires one NAME=NUMBER",
            param_hint="WHAT",
        )
    _await_state(run_dir, what, protocol_state(typed[0]), topic, seconds)


def _await_state(
    run_dir: Path | None, region: str, state: ProtocolState, topic: str | None, seconds: float
) -> None:
    from emulator.scenarios.region_queries import await_state

    try:
        awaited = state.of_only(topic)
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--topic") from None
    run = open_run_of(run_dir)

    async def perform() -> int:
        refuse_ended(await run.status())
        return await await_state(run, region, awaited, seconds)

    print(f"{region} reached {awaited}: {asyncio.run(perform())} counted")


def _await_condition(
    run_dir: Path | None, condition: str, words: Sequence[str], topic: str | None, seconds: float
) -> None:
    from emulator.scenarios.await_conditions import await_condition

    if len(words) > 2 or (words and topic is not None):
        raise typer.BadParameter("a condition has up to two words, TOPIC and SUBSCRIPTION", param_hint="NAME")
    subject = (*words, None, None)
    run = open_run_of(run_dir)

    async def perform() -> None:
        refuse_ended(await run.status())
        await await_condition(run, condition, subject[0] or topic, subject[1], seconds)

    try:
        asyncio.run(perform())
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="NAME") from None
    print(" ".join([condition, *words, *([topic] if topic else [])]) + ": reached")


def _change_regions(
    run_dir: Path | None,
    regions: list[str] | None,
    cluster: str | None,
    verb: str,
    outcome: str,
) -> None:
    """Change regions concurrently, record and print each change. Unknown regions are refused before."""
    from emulator.runtimes.opening import select_regions
    from emulator.runtimes.operator import change_regions

    if bool(regions) == (cluster is not None):
        raise typer.BadParameter("name one or more regions, or --cluster and none", param_hint="REGION")
    run = open_run_of(run_dir)
    selected = select_regions(run.topology, regions, cluster)
    changes = change_regions(
        run, verb, selected, on_changed=lambda region: print(f"{region} {outcome}"), on_unchanged=print
    )
    asyncio.run(changes)
