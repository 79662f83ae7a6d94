"""A region on real sockets with a client, for tests of the client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from emulator.client import Client
from tests.broker.regions import Regions, regions


class SocketRegion:
    """The region `us` and a client of it. Tests crash and start the region through `world`."""

    world: Regions
    client: Client

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with regions("us") as self.world, self.world.client("us") as self.client:
            yield
