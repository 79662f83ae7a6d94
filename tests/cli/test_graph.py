"""`geoemu graph`: the figure of a topology or a run, as Mermaid and as SVG."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from emulator.cli.mermaid import as_mermaid
from emulator.cli.svg import as_svg
from emulator.cli.topology_graph import GraphLink, GraphRegion, TopologyGraph, graph_of
from emulator.cli.verbs import app
from emulator.config.link_shape import LinkShape
from emulator.config.loading import load_topology
from emulator.errors import ConfigurationError, Refused
from tests.runtimes.fixtures import small_topology, write_topology
from tests.runtimes.test_run_directory import new_run

SVG = "{http://www.w3.org/2000/svg}"
EXAMPLES = Path(__file__).parents[2] / "examples" / "shapes"


def typed(*words: object) -> str:
    result = CliRunner().invoke(app, ["graph", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    """Return x, y, width and height of each region's box."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return [
        tuple(float(one.attrib[key]) for key in ("x", "y", "width", "height"))  # type: ignore[misc]
        for one in found
        if one.get("class") == "box"
    ]


def test_mermaid_has_a_group_for_each_cluster_and_one_line_for_directions_that_are_alike(
    tmp_path: Path,
) -> None:
    topology = write_topology(tmp_path)
    one_way = "links:\n  defaults: {latency_ms: 1}\n  exceptions: [{from: us-west, to: eu-central, latency_ms: 7.5}]\n"
    topology.write_text(topology.read_text().replace("links: {defaults: {latency_ms: 1}}\n", one_way))
    assert typed("-f", topology) == (
        "flowchart LR\n"
        '  subgraph c0["americas"]\n'
        '    r0["us-east"]\n'
        '    r1["us-west"]\n'
        "  end\n"
        '  subgraph c1["europe"]\n'
        '    r2["eu-central"]\n'
        "  end\n"
        '  r0 <-->|"1 ms"| r1\n'
        '  r0 <-->|"1 ms"| r2\n'
        '  r1 -->|"7.5 ms"| r2\n'
        '  r2 -->|"1 ms"| r1\n'
    )


@pytest.mark.parametrize("shape", ["ring", "hub", "chain", "mesh"])
def test_a_routed_link_is_not_drawn(shape: str) -> None:
    graph = graph_of(load_topology(EXAMPLES / f"{shape}.yaml"))
    count = sum(map(len, graph.clusters.values()))
    expected = {"ring": count, "hub": count - 1, "chain": count - 1, "mesh": count * (count - 1) // 2}
    assert len({frozenset((one.source, one.target)) for one in graph.links}) == expected[shape]


def test_a_run_is_drawn_with_its_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = new_run(small_topology(tmp_path / "files"), tmp_path / "run", tmp_path)
    with directory.edit() as record:
        record.links["us-east", "us-west"] = LinkShape(250.0, state="cut")
    text = typed("--run-dir", tmp_path / "run")
    assert 'r0["us-east (stopped)"]' in text
    assert 'r0 -.->|"250 ms, cut"| r1' in text
    assert "class r0,r1,r2 down" in text
    svg = typed("--run-dir", tmp_path / "run", "--format", "svg")
    assert "us-east: stopped" in svg
    assert svg.count('class="bad"') == 4, "three regions and one link"


def test_names_cannot_leave_their_place() -> None:
    name = '"]</text><script>alert(1)</script>|#&'
    graph = TopologyGraph(
        name, {name: (GraphRegion(name), GraphRegion("b"))}, (GraphLink(name, "b", name, True, True),)
    )
    parsed = ElementTree.fromstring(as_svg(graph))
    assert not list(parsed.iter(f"{SVG}script"))
    assert [one.text for one in parsed.iter(f"{SVG}text")].count(name) == 4, "title, cluster, link and region"
    assert not set('"]<>|&') & set(as_mermaid(graph).split('"')[1])


@pytest.mark.parametrize("sizes", [(), (1,), (2,), (1, 1), (3, 2, 1), (8, 8), (1,) * 20, (40,)], ids=str)
def test_boxes_are_inside_of_the_figure_and_apart(sizes: tuple[int, ...]) -> None:
    clusters = {
        f"cluster-{number}": tuple(GraphRegion(f"region-{number}-{one}") for one in range(size))
        for number, size in enumerate(sizes)
    }
    names = [one.name for members in clusters.values() for one in members]
    links = tuple(GraphLink(a, b, "40 ms", True, False) for a, b in combinations(names, 2))
    svg = as_svg(TopologyGraph("sizes", clusters, links))
    _, _, width, height = map(float, ElementTree.fromstring(svg).attrib["viewBox"].split())
    found = boxes(svg)
    assert len(found) == sum(sizes)
    assert all(x > 0 and y > 0 and x + w < width and y + h < height for x, y, w, h in found)
    for (x, y, w, h), (x2, y2, w2, h2) in combinations(found, 2):
        assert x + w < x2 or x2 + w2 < x or y + h < y2 or y2 + h2 < y


def test_the_suffix_of_the_file_decides_the_format(tmp_path: Path) -> None:
    topology = write_topology(tmp_path)
    for name, begins in (("figure.svg", "<svg"), ("figure.mmd", "flowchart")):
        assert typed("-f", topology, "-o", tmp_path / name) == f"{tmp_path / name} is written\n"
        assert (tmp_path / name).read_text().startswith(begins)
    assert typed("-f", topology, "--format", "svg") == (tmp_path / "figure.svg").read_text()


def test_wrong_input_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        typed("-f", tmp_path / "none.yaml")
    with pytest.raises(Refused, match="no run in"):
        typed("--run-dir", tmp_path)
    with pytest.raises(Refused, match="cannot be written: Is a directory"):
        typed("-f", write_topology(tmp_path), "-o", tmp_path)
