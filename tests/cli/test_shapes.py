"""Link profiles and topologies with a shape on the command line, with regions as processes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_curl import done_by_shell
from tests.cli.test_runs import geoemu, typed
from tests.runtimes.fixtures import end_all, wait_until, write_topology

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start us-east - us-west - eu-central, with 1 ms for each hop."""
    folder = tmp_path_factory.mktemp("chain")
    write_topology(folder, more="shape: chain\n")
    typed(folder, "up", "--detach")
    yield folder
    typed(folder, "down")
    end_all(folder / ".geoemu" / "runs" / "1")


def links_in(folder: Path) -> dict[str, str]:
    """Return `from > to` -> state, of links that are not up."""
    links = json.loads(typed(folder, "status", "--json"))["links"]
    return {f"{link['from']} > {link['to']}": link["state"] for link in links if link["state"] != "up"}


def test_the_check_names_the_shape(chain: Path) -> None:
    assert typed(chain, "check") == (
        "topology.yaml is fine: 3 regions in 2 clusters, 6 links of shape chain, 1 namespace\n"
    )


def test_a_link_has_a_profile_until_it_is_healed(chain: Path) -> None:
    assert typed(chain, "profile", "us-east", "us-west", "satellite") == (
        "us-east <-> us-west has the profile satellite\n"
    )
    shown = typed(chain, "status").splitlines()
    assert "us-east -> us-west is up, profile satellite" in shown
    assert "link profiles: satellite (2)" in shown
    (routed,) = (line for line in shown if line.startswith("us-east -> eu-central"))
    assert routed.startswith("us-east -> eu-central is up, latency 301 ms + up to 70 ms")
    assert routed.endswith(", over us-west")
    refused = geoemu("profile", "us-east", "us-west", "satelite", folder=chain)
    assert (refused.returncode, "did you mean satellite?" in refused.stderr) == (2, True)
    typed(chain, "heal")
    assert "profile" not in typed(chain, "status")


def test_heal_of_a_routed_link_names_the_route_that_is_still_cut(chain: Path) -> None:
    typed(chain, "cut", "us-west", "eu-central", "--one-way")
    assert links_in(chain) == {"us-west > eu-central": "cut", "us-east > eu-central": "cut"}
    assert typed(chain, "heal", "us-east", "eu-central") == (
        "us-east -> eu-central is still cut: a fault on its route us-east -> us-west -> eu-central remains\n"
    )
    assert typed(chain, "heal", "us-west", "eu-central") == "us-west <-> eu-central is up\n"
    assert links_in(chain) == {}


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_commands_for_a_hop_include_the_links_over_it(chain: Path) -> None:
    printed = typed(chain, "cut", "us-west", "eu-central", "--one-way", "--curl").splitlines()
    targets = [line.rpartition("/geoemu/v1/links/")[2] for line in printed]
    assert targets == ["us-west/eu-central"] * 2 + ["us-east/eu-central"] * 2
    done_by_shell("\n".join(printed))

    def waiting_for(name: str) -> str:
        regions = json.loads(typed(chain, "status", "--json"))["regions"]
        return next(region["waiting_for"] for region in regions if region["name"] == name)

    wait_until(lambda: "eu-central" in waiting_for("us-east"), "the keep-alive ends the link that is cut")
    done_by_shell(typed(chain, "heal", "us-west", "eu-central", "--curl"))
    typed(chain, "heal")
    wait_until(
        lambda: (
            not any(
                region["waiting_for"] for region in json.loads(typed(chain, "status", "--json"))["regions"]
            )
        ),
        "all links are established",
    )
