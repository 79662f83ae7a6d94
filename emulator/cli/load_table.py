"""The load of a run as tables for a terminal of any width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emulator.cli.output import STYLES
from emulator.cli.region_load import LinkLoad, RegionLoad, RunLoad

WIDE: Final = 72
"""Width of a terminal in columns from which on every column is shown."""
NARROW: Final = 44
"""Width below which only the most important columns are shown."""
GAP: Final = 2
"""Columns between two columns of a table."""
NAME_MIN: Final = 4
"""Smallest width to which names are cut."""
UNKNOWN: Final = "-"


def as_tables(load: RunLoad, heading: str, width: int) -> RenderableType:
    """Return the load as tables that fit into `width` columns. On a narrow terminal, less important columns are left
    out, and long names are cut."""
    return Group(
        Text(heading, "bold", no_wrap=True, overflow="ellipsis"),
        _regions(load, width),
        Text(),
        _links(load, width),
    )


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Text]], width: int) -> Table:
    """Return a table of these columns of the rows, with numbers at the right. The first column is cut to the width that
    the others leave."""
    table = Table(box=None, padding=(0, GAP, 0, 0), header_style="bold", show_edge=False)
    others = (max(len(name), *(row[name].cell_len for row in rows), 0) + GAP for name in columns[1:])
    first = max(width - sum(others) - GAP, NAME_MIN)
    for number, name in enumerate(columns):
        justify: Literal["left", "right"] = "left" if name in _TEXT_COLUMNS else "right"
        table.add_column(
            name, justify=justify, no_wrap=True, overflow="ellipsis", max_width=None if number else first
        )
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table


_TEXT_COLUMNS: Final = ("region", "cluster", "state", "link")


def _regions(load: RunLoad, width: int) -> Table:
    shown = [name for name, least in _REGION_COLUMNS.items() if width >= least]
    return _table(shown, list(map(_region_cells, load.regions)), width)


_REGION_COLUMNS: Final = {
    **{"region": 0, "cluster": WIDE, "state": 0, "in/s": NARROW, "out/s": NARROW},
    **{"backlog": 0, "snapshot": WIDE},
}
"""Column -> width of a terminal from which on it is shown."""


def _region_cells(region: RegionLoad) -> dict[str, Text]:
    return {
        "region": Text(region.name),
        "cluster": Text(region.cluster),
        "state": Text(region.state, STYLES.get(region.state, "")),
        "in/s": _number(region.rate_in),
        "out/s": _number(region.rate_out),
        "backlog": _number(region.backlog),
        "snapshot": _duration(
            None if region.snapshot_age_seconds is None else region.snapshot_age_seconds * 1000
        ),
    }


def _links(load: RunLoad, width: int) -> Table:
    shown = ["link", "state", *(["messages"] if width >= NARROW else []), "lag"]
    return _table(shown, list(map(_link_cells, load.links)), width)


def _link_cells(link: LinkLoad) -> dict[str, Text]:
    state = "no link" if link.state == "up" and link.is_connected is False else link.state
    return {
        "link": Text(f"{link.source} -> {link.target}"),
        "state": Text(state, "green" if state == "up" else "bold red"),
        "messages": _number(link.lag_messages),
        "lag": _duration(link.lag_ms),
    }


def _number(value: float | None) -> Text:
    if value is None:
        return Text(UNKNOWN)
    return Text(f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}")


def _duration(milliseconds: float | None) -> Text:
    if milliseconds is None:
        return Text(UNKNOWN)
    seconds = milliseconds / 1000
    if seconds < 1:
        return Text(f"{milliseconds:.0f} ms")
    return Text(f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min")
