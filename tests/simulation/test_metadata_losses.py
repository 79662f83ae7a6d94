"""Metadata sync in fault-injection runs in which clusters declare each other lost, rightly or not (INV-82)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from emulator.errors import StorageError
from tests.simulation.test_metadata_sync import SimulatedScenario, play


class ScenarioWithLosses(SimulatedScenario):
    """A tombstone that is dropped too early makes clusters differ in the end."""

    async def run(self) -> None:
        await super().run()
        await self._take_back()
        await self.world.simulation.until(self._are_alike, within_seconds=60)

    async def _step(self) -> None:
        if self.random.random() < 0.15:
            name = self.random.choice(list(self.world.regions))
            cluster = self.random.choice(list(self.world.configurations))
            with contextlib.suppress(StorageError, TimeoutError):
                async with asyncio.timeout(2):
                    await self._declare(name, cluster, lost=self.random.random() < 0.6)
        else:
            await super()._step()

    async def _take_back(self) -> None:
        regions = self.world.regions
        await self.world.simulation.until(lambda: all(one.is_up for one in regions.values()))
        for name in regions:
            for cluster in self.world.configurations:
                await self._declare(name, cluster, lost=False)

    async def _declare(self, name: str, cluster: str, *, lost: bool) -> None:
        """Declare in region `name` that another cluster is lost, or back."""
        broker = self.world.regions[name].broker
        if broker is None or not self.world.regions[name].is_up or broker.synchronizer is None:
            return
        if cluster in broker.synchronizer.settings.clusters:
            await broker.synchronizer.losses.declare(cluster, lost=lost)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_clusters_that_declared_each_other_lost_have_the_same_in_the_end(seed: int) -> None:
    assert play(seed, kind=ScenarioWithLosses).acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_clusters_that_declared_each_other_lost_have_the_same_with_many_seeds(seed: int) -> None:
    play(seed, kind=ScenarioWithLosses)
