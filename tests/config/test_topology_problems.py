"""The report on an invalid topology: every problem with its place, its value and its rule."""

from __future__ import annotations

import shlex
import subprocess
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.config.loading import load_topology
from emulator.errors import ConfigurationError, Problem
from tests.config.topology_files import write_topology

SAMPLE = Path(__file__).parents[2] / "topology.yaml"


@dataclass(frozen=True)
class Case:
    claim: str
    topology: str
    problems: str
    """Problems as they are printed, without the folder."""
    clusters: dict[str, str] = field(default_factory=dict)


CASES = [
    Case(
        "a misspelt key gets the nearest one suggested",
        """
        clusters: [americas]
        tenats: [public]
        """,
        """
        topology.yaml:3: tenats: is not a key here; there are name, runtime, clusters, shape, links, tenants, namespaces, pulsar_peers, log, settings, compatibility, admin_hosts, security (did you mean 'tenants'?)
        """,
    ),
    Case(
        "a number in quotes is text",
        """
        clusters: [americas]
        links:
          defaults:
            latency_ms: "20"
        """,
        """
        topology.yaml:5: links.defaults.latency_ms: "20": must be a number, written without quotes
        """,
    ),
    Case(
        "numbers have limits",
        """
        clusters: [americas]
        links:
          defaults: {latency_ms: -1, jitter_ms: .inf, bandwidth_bytes_per_second: 0}
          exceptions:
            - {between: [us-east, us-west], latency_ms: 3600001}
        """,
        """
        topology.yaml:4: links.defaults.latency_ms: -1: must be at least 0
        topology.yaml:4: links.defaults.jitter_ms: Infinity: must be a finite number
        topology.yaml:4: links.defaults.bandwidth_bytes_per_second: 0: must be at least 1
        topology.yaml:6: links.exceptions[0].latency_ms: 3600001: must be at most 3600000
        """,
    ),
    Case(
        "names that are not written as names",
        """
        name: my topology
        clusters: [americas, ../europe]
        tenants: [public, "a b", 7]
        namespaces:
          public/default:
          orders:
          public/a/b:
        """,
        """
        topology.yaml:2: name: "my topology": must be 1 to 63 of a-z A-Z 0-9 . _ - and begin with a letter or digit
        topology.yaml:3: clusters[1]: "../europe": must be 1 to 63 of a-z A-Z 0-9 . _ - and begin with a letter or digit
        topology.yaml:4: tenants[1]: "a b": must be made of letters, digits and - = : . _
        topology.yaml:4: tenants[2]: 7: must be text
        topology.yaml:7: namespaces.orders: must be tenant/namespace, each made of letters, digits and - = : . _
        topology.yaml:8: namespaces.public/a/b: must be tenant/namespace, each made of letters, digits and - = : . _
        """,
    ),
    Case(
        "a cluster without a file, one listed twice",
        """
        clusters:
          - americas
          - europa
          - americas
        """,
        """
        topology.yaml:4: clusters[1]: "europa": must have its file FOLDER/clusters/europa.yaml, which does not exist (did you mean 'europe'?)
        topology.yaml:5: clusters[2]: "americas": must be listed once
        """,
    ),
    Case(
        "links that lead nowhere, to themselves, or say nothing",
        """
        clusters: [americas, europe]
        links:
          exceptions:
            - {between: [us-east, us-wst], latency_ms: 1}
            - {from: us-east, to: us-east, latency_ms: 1}
            - {between: [us-east], latency_ms: 1}
            - {from: us-east, latency_ms: 1}
            - {between: [us-east, us-west], from: us-east, to: us-west, latency_ms: 1}
            - {between: [us-east, eu-central]}
            - 7
            - {between: [us-east, 7], latency_ms: 1}
        """,
        """
        topology.yaml:5: links.exceptions[0].between[1]: "us-wst": must be a region; there are us-east, us-west, eu-central (did you mean 'us-west'?)
        topology.yaml:6: links.exceptions[1].to: "us-east": must be another region: there is no link from a region to itself
        topology.yaml:7: links.exceptions[2].between: ["us-east"]: must name two regions
        topology.yaml:8: links.exceptions[3]: {"from": "us-east", "latency_ms": 1}: must contain either between: [a, b] or from: a and to: b
        topology.yaml:9: links.exceptions[4]: {"between": ["us-east", "us-west"], "from": "us-east", "to"…: must contain either between: [a, b] or from: a and to: b
        topology.yaml:10: links.exceptions[5]: {"between": ["us-east", "eu-central"]}: must change something: give profile, latency_ms, jitter_ms or bandwidth_bytes_per_second
        topology.yaml:11: links.exceptions[6]: 7: must be a mapping
        topology.yaml:12: links.exceptions[7].between[1]: 7: must be text
        """,
    ),
    Case(
        "profiles that do not exist, and two for all links",
        """
        clusters: [americas, europe]
        shape: rng
        links:
          profile: transatlantic
          defaults: {profile: satellite}
          exceptions:
            - {between: [us-east, us-west], profile: satelite}
            - {between: [us-east, eu-central], profile: 7}
        """,
        """
        topology.yaml:3: shape: "rng": must be mesh, ring, hub, chain or active-standby (did you mean 'ring'?)
        topology.yaml:6: links.defaults.profile: "satellite": must be given once; links.profile is already on line 5
        topology.yaml:8: links.exceptions[0].profile: "satelite": must be same-continent, transatlantic, satellite or lossy-wifi (did you mean 'satellite'?)
        topology.yaml:9: links.exceptions[1].profile: 7: must be same-continent, transatlantic, satellite or lossy-wifi
        """,
    ),
    Case(
        "a shape of one region",
        """
        clusters: [europe]
        shape: ring
        """,
        """
        topology.yaml:3: shape: "ring": must be mesh or omitted, because there is one region, eu-central
        """,
    ),
    Case(
        "the same exception twice",
        """
        clusters: [americas]
        links:
          exceptions:
            - {between: [us-east, us-west], latency_ms: 1}
            - {from: us-east, to: us-west, latency_ms: 2}
            - {between: [us-west, us-east], latency_ms: 3}
        """,
        """
        topology.yaml:7: links.exceptions[2]: {"between": ["us-west", "us-east"], "latency_ms": 3}: must be stated once; us-west to us-east is already on line 5
        """,
    ),
    Case(
        "namespaces: no tenant, no region, a region twice, an unknown one",
        """
        clusters: [americas, europe]
        tenants: [acme, acme]
        namespaces:
          acme/a: {regions: []}
          acme/b: {regions: [us-east, us-east]}
          acme/c: {regions: [eu-centrl], deduplication: yes}
          acme/d: {regions: us-east}
          public/default:
        """,
        """
        topology.yaml:3: tenants[1]: "acme": must be listed once
        topology.yaml:5: namespaces.acme/a.regions: []: must name at least one region
        topology.yaml:6: namespaces.acme/b.regions[1]: "us-east": must be listed once
        topology.yaml:7: namespaces.acme/c.deduplication: "yes": must be true or false
        topology.yaml:7: namespaces.acme/c.regions[0]: "eu-centrl": must be a region; there are us-east, us-west, eu-central (did you mean 'eu-central'?)
        topology.yaml:8: namespaces.acme/d.regions: "us-east": must be all or a list of regions
        topology.yaml:9: namespaces.public/default: must have its tenant public listed under tenants
        """,
    ),
    Case(
        "logs: an unknown backend, servers that are none, servers without kafka",
        """
        clusters: [americas, europe]
        log: {backend: sqllite}
        """,
        """
        topology.yaml:3: log.backend: "sqllite": must be sqlite, memory or kafka (did you mean 'sqlite'?)
        clusters/americas.yaml:5: regions.us-west.log.bootstrap_servers: "kafka:9092": must not be given with backend memory; only kafka uses it
        clusters/europe.yaml:4: regions.eu-central.log.bootstrap_servers: "kafka": must be host:port[,host:port...]
        """,
        {
            "americas": """
                log: {backend: kafka}
                regions:
                  us-east:
                  us-west: {log: {backend: memory, bootstrap_servers: "kafka:9092"}}
                """,
            "europe": """
                regions:
                  eu-central:
                    log: {backend: kafka, bootstrap_servers: kafka}
                """,
        },
    ),
    Case(
        "regions: a name twice, a port twice, a port that is none",
        """
        clusters: [americas, europe]
        """,
        """
        clusters/americas.yaml:5: regions.us-east.admin_port: 6650: must be an unused port; service_port of us-east uses it
        clusters/americas.yaml:6: regions.us-west.service_port: 65536: must be at most 65535
        clusters/americas.yaml:7: regions.all: must not be a region's name: all means every region
        clusters/americas.yaml:8: regions...: must be 1 to 63 of a-z A-Z 0-9 . _ - and begin with a letter or digit
        clusters/europe.yaml:3: regions.us-east: must be unique; FOLDER/clusters/americas.yaml has a region of that name
        clusters/europe.yaml:4: regions.eu-central.service_port: 6650: must be an unused port; service_port of us-east uses it
        clusters/europe.yaml:5: regions.eu-west.host: "a host": must be an IPv4 address, an IPv6 address without brackets, or a host name; without a port
        """,
        {
            "americas": """
                regions:
                  us-east:
                    service_port: 6650
                    admin_port: 6650
                  us-west: {service_port: 65536}
                  all:
                  ..:
                """,
            "europe": """
                regions:
                  us-east:
                  eu-central: {service_port: 6650, host: localhost}
                  eu-west: {service_port: 6650, host: a host}
                """,
        },
    ),
    Case(
        "settings: an event topic that is none, that clusters do not agree on, or of a store that is nobody else's",
        """
        clusters: [americas, europe]
        settings:
          configuration_metadata_sync_event_topic: non-persistent://public/default/events
          metadata_sync_event_topic: persistent://public/default/local
        """,
        """
        topology.yaml:4: settings.configuration_metadata_sync_event_topic: "non-persistent://public/default/events": must name a persistent topic without partitions
        topology.yaml:5: settings.metadata_sync_event_topic: "persistent://public/default/local": must be omitted: it would share cursors and positions, which are local to a region; configuration_metadata_sync_event_topic shares tenants, namespaces and policies
        clusters/europe.yaml:3: settings.configuration_metadata_sync_event_topic: "events": must be the same everywhere; us has non-persistent://public/default/events
        """,
        {
            "americas": """
                regions: {us: {}}
                """,
            "europe": """
                regions: {eu: {}}
                settings: {configuration_metadata_sync_event_topic: events}
                """,
        },
    ),
    Case(
        "settings: durations without a unit, of zero length",
        """
        clusters: [americas]
        settings: {partial_snapshots_after: 10}
        """,
        """
        topology.yaml:3: settings.partial_snapshots_after: 10: must be text
        clusters/americas.yaml:3: regions.us-east.settings.partial_snapshots_after: "soon": must be a duration with its unit, like 500ms, 10s or 2m
        clusters/americas.yaml:5: regions.us-west.settings.partial_snapshots_after: "0s": must be longer than 0 and at most a year, or empty: never
        clusters/americas.yaml:6: regions.us-north.settings.partial_snapshots_after: "9999999m": must be longer than 0 and at most a year, or empty: never
        """,
        {
            "americas": """
                regions:
                  us-east: {settings: {partial_snapshots_after: soon}}
                  us-south: {settings: {partial_snapshots_after: 10m}}
                  us-west: {settings: {partial_snapshots_after: 0s}}
                  us-north: {settings: {partial_snapshots_after: 9999999m}}
                """
        },
    ),
    Case(
        "settings: unknown, too small, at odds with one another across levels",
        """
        clusters: [americas]
        settings:
          peer_reconnect_backoff_ms: 2000
          snapshot_cache_size: 0
          snapshot_intervall_ms: 5
        """,
        """
        topology.yaml:4: settings.peer_reconnect_backoff_ms: 2000: peer_reconnect_backoff_ms (2000) must not be more than peer_reconnect_backoff_ms_max (250)
        topology.yaml:5: settings.snapshot_cache_size: 0: must be at least 10
        topology.yaml:6: settings.snapshot_intervall_ms: 5: is not a key here (did you mean 'snapshot_interval_ms'?)
        clusters/americas.yaml:5: regions.us-west.settings.peer_reconnect_backoff_ms_max: 1999: peer_reconnect_backoff_ms (2000) must not be more than peer_reconnect_backoff_ms_max (1999)
        """,
        {
            "americas": """
                regions:
                  us-east:
                  us-west:
                    settings: {peer_reconnect_backoff_ms_max: 1999}
                  us-south:
                    settings: {peer_reconnect_backoff_ms_max: 2000}
                """
        },
    ),
    Case(
        "regions that replicate to each other take messages of the same size; others need not",
        """
        clusters: [americas]
        namespaces:
          public/default: {regions: [us-east, us-west]}
          public/local: {regions: [us-south]}
          public/both: {regions: [us-east, us-west]}
        """,
        """
        clusters/americas.yaml:5: regions.us-west.settings.max_message_bytes: 9000000: max_message_bytes must be the same in regions that replicate to each other: us-west has 9000000, us-east has 5242880 (public/default)
        """,
        {
            "americas": """
                regions:
                  us-east:
                  us-west:
                    settings: {max_message_bytes: 9000000}
                  us-south:
                    settings: {max_message_bytes: 1000}
                """
        },
    ),
    Case(
        "a declared Pulsar cluster has a name and a token of its own",
        """
        clusters: [americas]
        pulsar_peers:
          us-east: {token: one}
          old: {token: one, may: [everything]}
          older: {}
        """,
        """
        topology.yaml:4: pulsar_peers.us-east: must be unique; a region has this name
        topology.yaml:5: pulsar_peers.old.may[0]: "everything": must be replicated-subscriptions or unknown-markers
        topology.yaml:5: pulsar_peers.old.token: "one": must be unique; us-east has the same token
        topology.yaml:6: pulsar_peers.older.token: is required
        """,
    ),
    Case(
        "a switch that this version does not have",
        """
        clusters: [americas]
        compatibility:
          snapshots: upstream
        """,
        """
        topology.yaml:4: compatibility.snapshots: "upstream": is not a switch; there are overlapping_batches, queue_priority, failed_promotion, unloaded_owner, fenced_producers, replicated_subscription_status, snapshot_cache, markers_in_backlog, snapshot_timeout, dead_region, metadata_conflicts, metadata_order (did you mean 'snapshot_cache'?)
        """,
    ),
    Case(
        "a key twice: the second is the problem",
        """
        clusters: [americas]
        links:
          defaults:
            latency_ms: 1
            latency_ms: 2
        clusters: [europe]
        """,
        """
        topology.yaml:6: links.defaults.latency_ms: must occur once; it is already on line 5
        topology.yaml:7: clusters: must occur once; it is already on line 2
        """,
    ),
    Case(
        "files that are no YAML, or not a mapping, each with the rest of the problems",
        """
        clusters: [americas, europe]
        runtime: procss
        """,
        """
        topology.yaml:3: runtime: "procss": must be process or compose (did you mean 'process'?)
        clusters/americas.yaml:3: must be valid YAML: while parsing a flow node, expected the node content, but found '<stream end>'
        clusters/europe.yaml:1: ["eu-central"]: must be a mapping
        """,
        {"americas": "regions:\n  us-east: [1,\n", "europe": "- eu-central\n"},
    ),
    Case(
        "nobody is called unknown while a file that may name it cannot be read",
        """
        clusters: [americas, europe]
        links: {exceptions: [{between: [us-east, eu-central], latency_ms: 3}]}
        namespaces: {public/default: {regions: [us-east, eu-central]}}
        """,
        """
        clusters/europe.yaml:1: regions: null: must be a mapping
        """,
        {"europe": "regions:\n"},
    ),
    Case(
        "a file with nothing in it",
        "# empty\n",
        """
        topology.yaml:1: null: must be a mapping
        """,
    ),
    Case("no clusters", "clusters: []\n", "topology.yaml:1: clusters: []: must have at least 1\n"),
    Case("clusters left out", "name: a\n", "topology.yaml:1: clusters: is required\n"),
    Case(
        "a tag that would run something",
        """
        clusters: [americas]
        name: !!python/object/apply:os.getcwd []
        """,
        """
        topology.yaml:3: must not use the tag tag:yaml.org,2002:python/object/apply:os.getcwd
        """,
    ),
    Case(
        "keys that are no text",
        """
        clusters: [americas]
        ? [a, b]
        : 1
        """,
        """
        topology.yaml:3: must have plain text as keys
        """,
    ),
    Case("bytes that no text may have", "name: a\nruntime: \0\n", "topology.yaml:2: must be valid YAML: special characters are not allowed\n"),
    Case("an escape beyond "
        "Unicode", 'name: "\\UFFFFFFFF"\n', "topology.yaml: must be valid YAML: an escape such as \\UFFFFFFFF is not a character\n"),
    Case("a number with a wrong tag", "name: !!int x\n", 'topology.yaml:1: must be a number that can be read ("x")\n'),
    Case("a file inside of itself", "clusters: &a [*a]\n", "topology.yaml:1: must not contain itself\n"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.claim)
def test_every_problem_is_named(case: Case, tmp_path: Path) -> None:
    path = write_topology(tmp_path, case.topology, **case.clusters)
    assert problems_of(path).splitlines() == textwrap.dedent(case.problems).strip("\n").splitlines()


def test_a_topology_that_is_not_there(tmp_path: Path) -> None:
    write_topology(tmp_path, "clusters: [americas]")
    missing = tmp_path / "topolgy.yaml"
    assert (
        problems_of(missing) == "topolgy.yaml: cannot be read: no such file (did you mean 'topology.yaml'?)"
    )
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    message = problems_of(nowhere / "topology.yaml")
    assert message.startswith(
        "topology.yaml: cannot be read: no such file; name another file with -f FILE, or copy"
    )
    _, _, copy = message.partition("copy the sample: ")
    subprocess.run(shlex.split(copy), cwd=nowhere, check=True)
    assert load_topology(nowhere / "topology.yaml").regions
    assert problems_of(tmp_path / "clusters") == "clusters: cannot be read: it is a directory"


def test_a_topology_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_bytes(b"name: a\nruntime: \xff\n")
    assert (
        problems_of(tmp_path / "topology.yaml") == "topology.yaml:2: must be UTF-8 text: invalid start byte"
    )


def test_few_aliases_that_stand_for_much(tmp_path: Path) -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 9))
    path = write_topology(tmp_path, f"l0: &l0 [1, 2]\n{levels}")
    assert "must have at most 20000 keys and values" in problems_of(path)


@pytest.mark.long
def test_brackets_without_end(tmp_path: Path) -> None:
    path = write_topology(tmp_path, "clusters: " + "[" * 100_000)
    assert problems_of(path) == "topology.yaml: must not be nested this deeply"


_YAML_PARTS = st.sampled_from(
    [*SAMPLE.read_text(), "\n  ", "\n    - ", ": ", "&a ", "*a", "<<: *a\n", "{", "[", "!!int ", '"', "? ", "\t", "\0", "\ud800"]
)  # fmt: skip


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_garbled_files_are_configuration_errors_and_nothing_else(data: st.DataObject, tmp_path: Path) -> None:
    """Parts of the sample are cut out, doubled or replaced: the result is an error report, never a crash."""
    for name in ("topology.yaml", "clusters/americas.yaml", "clusters/europe.yaml"):
        text = (SAMPLE.parent / name).read_text()
        for _ in range(data.draw(st.integers(0, 4))):
            start = data.draw(st.integers(0, len(text)))
            end = data.draw(st.integers(start, min(len(text), start + 20)))
            text = text[:start] + "".join(data.draw(st.lists(_YAML_PARTS, max_size=6))) + text[end:]
        (tmp_path / "clusters").mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    for problem in refusal(tmp_path / "topology.yaml"):
        assert str(problem).isprintable()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_KEYS = (
    "name",
    "runtime",
    "clusters",
    "links",
    "tenants",
    "namespaces",
    "pulsar_peers",
    "log",
    "settings",
    "compatibility",
)
_INNER_KEYS = (
    "defaults",
    "exceptions",
    "between",
    "from",
    "latency_ms",
    "public/default",
    "regions",
    "backend",
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(_KEYS),
        _VALUES
        | st.dictionaries(st.sampled_from(_INNER_KEYS), _VALUES, max_size=3)
        | st.lists(st.dictionaries(st.sampled_from(_INNER_KEYS), _VALUES, max_size=3), max_size=2)
        | st.just({"exceptions": [{"between": ["us-east", 3]}, 4, {"from": "us-east", "to": []}]}),
    )
)
def test_any_value_anywhere_is_a_configuration_error_and_nothing_else(
    tmp_path: Path, content: dict[str, object]
) -> None:
    path = write_topology(tmp_path, "")
    path.write_text(yaml.safe_dump({"clusters": ["americas"]} | content, allow_unicode=True))
    assert all(problem.line for problem in refusal(path))


def refusal(path: Path) -> list[Problem]:
    """Return the problems of a topology; nothing if it can be loaded."""
    try:
        load_topology(path)
    except ConfigurationError as error:
        return error.problems
    return []


def problems_of(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_topology(path)
    folder = str(path.parent)
    lines = str(caught.value).splitlines()
    return "\n".join(line.removeprefix(f"{folder}/").replace(folder, "FOLDER") for line in lines)
