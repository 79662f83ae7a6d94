"""What a program of one's own is told of the run that it works in, by its environment.

GEOEMU_RUN_DIR                  the run directory
GEOEMU_ACTOR                    its name: that of its history file
GEOEMU_REGION                   the region it is to work in
GEOEMU_SERVICE_URL              where its Pulsar clients connect to there
GEOEMU_ADMIN_URL                where the admin API of that region is
GEOEMU_SERVICE_URL_EU_CENTRAL   the same of each region, called so
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

RUN_DIR_VARIABLE = "GEOEMU_RUN_DIR"
ACTOR_VARIABLE = "GEOEMU_ACTOR"


class Addressed(Protocol):
    """A region, and where it is for clients outside."""

    @property
    def name(self) -> str: ...

    @property
    def service_url(self) -> str: ...

    @property
    def admin_url(self) -> str: ...


def surroundings(run_dir: Path, actor: str, region: str, regions: Iterable[Addressed]) -> dict[str, str]:
    """The variables. KeyError when there is no such region."""
    known = {one.name: one for one in regions}
    here = known[region]
    return {
        RUN_DIR_VARIABLE: str(run_dir.absolute()),
        ACTOR_VARIABLE: actor,
        "GEOEMU_REGION": region,
        "GEOEMU_SERVICE_URL": here.service_url,
        "GEOEMU_ADMIN_URL": here.admin_url,
        **{_variable(name): one.service_url for name, one in known.items()},
    }


def _variable(region: str) -> str:
    return "GEOEMU_SERVICE_URL_" + re.sub(r"\W", "_", region).upper()
