"""The contents of a scenario file, and the errors of a wrong one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.errors import ConfigurationError
from emulator.model.protocol_events import COUNT_MAX, PROTOCOL_EVENTS, ProtocolState
from emulator.scenarios.actors.specs import ConsumerSpec, ProducerSpec
from emulator.scenarios.format.conditions import AdminCondition, ReceivedCondition, SubscriptionExists
from emulator.scenarios.format.link_steps import Heal, OnLink
from emulator.scenarios.format.scenario_file import json_schema
from emulator.scenarios.format.steps import AdminCalls, Begin, OnRegion, Skew, Wait
from emulator.scenarios.scenario import SHIPPED, Scenario, load_scenario, parse_scenario, shipped_scenarios

from .virtual import ORDERS, TOPOLOGY, scenario_text

SCHEMA = Path(__file__).parents[2] / "emulator" / "schemas" / "scenario.schema.json"


def parse(text: str) -> Scenario:
    return parse_scenario(text, TOPOLOGY, "example.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        parse(text)
    return [str(problem) for problem in refused.value.problems]


def problems_of_steps(steps: str) -> list[str]:
    """Return the errors of these steps. The first step is in line 11."""
    return problems(scenario_text(steps))


@pytest.mark.parametrize("name", shipped_scenarios())
def test_scenarios_that_come_with_geoemu_are_right(name: str) -> None:
    scenario = load_scenario(SHIPPED / f"{name}.yaml", TOPOLOGY)
    assert scenario.name == name
    assert scenario.description


def test_actors_get_their_defaults_and_whole_topic_names() -> None:
    scenario = parse(scenario_text("begin: all"))
    assert scenario.topic == ORDERS
    assert scenario.part("fast") == ProducerSpec(
        name="fast",
        region="us-east",
        topic=ORDERS,
        rate_per_second=100,
        messages=None,
        message_bytes=200,
        batching=True,
        batching_delay_ms=10,
        send_timeout_ms=30_000,
        max_pending=10_000,
    )
    assert scenario.part("billing") == ConsumerSpec(
        name="billing",
        region="us-east",
        topic=ORDERS,
        subscription="billing",
        type="exclusive",
        replicated=True,
        acknowledge="individual",
        receiver_queue=1000,
    )


@pytest.mark.parametrize(
    ("step", "kind", "fields"),
    [
        ("kill: us-east", OnRegion, {"region": ("us-east",), "within": 30}),
        ("kill: {region: us-east, within: 1.5s}", OnRegion, {"region": ("us-east",), "within": 1.5}),
        ("wait: 250ms", Wait, {"time": 0.25}),
        ("wait: 2m", Wait, {"time": 120}),
        ("cut: [us-east, us-west]", OnLink, {"ends": ("us-east", "us-west"), "one_way": False}),
        ("hold: {from: us-east, to: us-west}", OnLink, {"ends": ("us-east", "us-west"), "one_way": True}),
        ("heal: all", Heal, {"between": (), "within": 10}),
        ("heal: [us-west, us-east]", Heal, {"between": ("us-west", "us-east")}),
        ("begin: fast", Begin, {"actors": ("fast",), "within": 10}),
        ("begin: [fast, consumers]", Begin, {"actors": ("fast", "consumers")}),
    ],
)
def test_steps_have_short_and_long_forms(step: str, kind: type, fields: dict[str, object]) -> None:
    (found,) = parse(scenario_text(step)).steps
    assert isinstance(found.action, kind)
    assert {name: getattr(found.action, name) for name in fields} == fields
    assert found.text == step


def test_conditions_differ_by_the_key_that_they_name() -> None:
    *_, received, exists = parse(
        scenario_text("""
            begin: billing
            wait_until: {consumer: billing, received_more: 5, within: 1s}
            wait_until: {subscription: billing, exists_in: us-west}
        """)
    ).steps
    assert isinstance(received.action, ReceivedCondition)
    assert (received.action.goal, received.action.counts_from_now) == (5, True)
    assert isinstance(exists.action, SubscriptionExists)


def test_groups_mean_those_of_their_kind_that_are_left() -> None:
    steps = parse(
        scenario_text("begin: slow\nbegin: producers\nbegin: all\nfinish: short\nfinish: producers")
    )
    assert [step.actors for step in steps.steps] == [
        ("slow",),
        ("fast", "short"),
        ("billing",),
        ("short",),
        ("slow", "fast"),
    ]


def test_all_problems_are_reported_at_once_with_line_key_path_rule_and_suggestion() -> None:
    assert problems("""\
name: Bad Name
topic: persistent://public
actors:
  producers:
    - {name: a, region: us-eats, rate_per_second: 0}
    - {name: a, region: us-west, mesages: 5, batching: maybe}
  consumers:
    - {name: c, region: eu-central, subscription: s, type: shared, acknowledge: cumulative}
    - {name: d, region: eu-central, type: exlusive}
steps:
  - begin: [a, b]
  - kill: us-wset
  - explode: us-west
  - wait: 10
  - wait_until: {consumer: c, received: 10, within: soon}
  - wait_until: {received: 10}
  - wait_until: {producer: a, published: 1, published_more: 1}
  - {kill: us-west, wait: 1s}
""") == [
        'example.yaml:1: name: "Bad Name":'
        " must be lower-case letters, digits, '-', '_' and '.', as it names files too",
        'example.yaml:2: topic: "persistent://public":'
        " topic 'persistent://public': must be [persistent://tenant/namespace/]topic",
        'example.yaml:5: actors.producers[0].region: "us-eats":'
        " must be a region of the topology: us-east, us-west, eu-central (did you mean 'us-east'?)",
        "example.yaml:5: actors.producers[0].rate_per_second: 0:"
        " must be a number greater than 0, or `unlimited`",
        'example.yaml:6: actors.producers[1].name: "a": another actor has this name',
        'example.yaml:6: actors.producers[1].batching: "maybe": must be true or false',
        "example.yaml:6: actors.producers[1].mesages: 5: is not a key here; there are name, region, topic,"
        " rate_per_second, messages, message_bytes, batching, batching_delay, send_timeout, max_pending, keyed,"
        " access, priority (did you mean 'messages'?)",
        "example.yaml:8: actors.consumers[0]:"
        ' {"name": "c", "region": "eu-central", "subscription": "s", …:'
        " a shared subscription allows individual acknowledgements only",
        "example.yaml:9: actors.consumers[1].subscription: is required",
        'example.yaml:9: actors.consumers[1].type: "exlusive":'
        " must be exclusive, shared, failover or key_shared (did you mean 'exclusive'?)",
        'example.yaml:11: steps[0].begin[1]: "b": must be an actor of this scenario:'
        " a, a, c, d, producers, consumers, programs, hosts, tasks, all",
        'example.yaml:12: steps[1].kill: "us-wset":'
        " must be a region of the topology: us-east, us-west, eu-central (did you mean 'us-west'?)",
        'example.yaml:13: steps[2].explode: "us-west": is not a key here',
        "example.yaml:14: steps[3].wait: 10: must be a duration with its unit, like 500ms, 10s or 2m",
        'example.yaml:15: steps[4].wait_until.within: "soon":'
        " must be a duration with its unit, like 500ms, 10s or 2m",
        'example.yaml:16: steps[5].wait_until: {"received": 10}:'
        " must name what to wait for: a producer, consumer, program, subscription, host, task,"
        " topics or get",
        'example.yaml:17: steps[6].wait_until: {"producer": "a", "published": 1, "published_more": 1}:'
        " must have exactly one of published, published_more",
        'example.yaml:18: steps[7]: {"kill": "us-west", "wait": "1s"}:'
        " a step has exactly one verb with its object, like `kill: us-east`",
    ]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("kill: billing", 'kill: "billing": must be a region of the topology: us-east, us-west, eu-central'),
        (
            "begin: us-east",
            'begin: "us-east": must be an actor of this scenario: fast, slow, short, billing,',
        ),
        ("begin: []", "begin: []: must not be empty"),
        ("begin: 5", "begin: 5: must be a list"),
        ("cut: [us-east]", 'cut: ["us-east"]: must be two different regions, like [us-east, us-west]'),
        ("cut: [us-east, us-east]", "must be two different regions"),
        ("cut: {from: us-east}", "must be either [A, B] (both directions) or {from: A, to: B}"),
        ("heal: []", "heal: []: must be two different regions"),
        ("heal: both", 'heal: "both": must be two different regions, like [us-east, us-west], or `all`'),
        (
            "heal: us-east",
            'heal: "us-east": must be two different regions, like [us-east, us-west], or `all`',
        ),
        ("heal: [us-east]", "must be two different regions, like [us-east, us-west], or `all`"),
        ("heal: 5", "heal: 5: must be two different regions, like [us-east, us-west], or `all`"),
        ("heal: [us-east, all]", 'heal[1]: "all": must be a region of the topology'),
        ("move: {to: us-west}", 'move: {"to": "us-west"}: must have exactly one of consumer, producer'),
        (
            "move: {consumer: fast, to: us-west}",
            'consumer: "fast": must be a consumer of this scenario: billing',
        ),
        ("wait: 0s", 'wait: "0s": must be greater than 0'),
        ("wait: -1s", 'wait: "-1s": must be a duration with its unit'),
        ("drain:", "a step has exactly one verb with its object"),
        ("drain: {within: 10s, twice: true}", "drain.twice: true: is not a key here; there are within"),
        ("kil: us-east", "steps[0].kil: \"us-east\": is not a key here (did you mean 'kill'?)"),
        ("kill", 'steps[0]: "kill": must be a mapping'),
        ("wait_until: drained", 'wait_until: "drained": must name what to wait for'),
        ("wait_until: [drained]", 'wait_until: ["drained"]: must name what to wait for'),
        ("wait_until: {subscription: biling, exists_in: us-west}", "(did you mean 'billing'?)"),
        ("wait_until: {subscription: billing, exists_in: mars}", 'exists_in: "mars": must be a region'),
        ("wait_until: {consumer: billing, received: '5'}", 'received: "5": must be a whole number'),
        ("wait_until: {consumer: billing, recieved: 5}", "(did you mean 'received'?)"),
    ],
)
def test_a_wrong_step_is_explained(step: str, problem: str) -> None:
    found = problems_of_steps(step)
    assert any(problem in each for each in found), found
    assert all(each.startswith("example.yaml:11: steps[0]") for each in found)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        (
            "begin: fast\nbegin: fast",
            'example.yaml:12: steps[1].begin: "fast": fast has begun already',
        ),
        (
            "wait_until: {consumer: billing, received: 1}\nbegin: billing",
            'example.yaml:11: steps[0].wait_until: {"consumer": "billing", "received": 1}:'
            " billing has not begun here; put `begin: billing` before",
        ),
        (
            "move: {consumer: billing, to: us-west}",
            'example.yaml:11: steps[0].move: {"consumer": "billing", "to": "us-west"}:'
            " billing has not begun here; put `begin: billing` before",
        ),
        (
            "begin: billing\nfinish: billing\nmove: {consumer: billing, to: us-west}",
            'example.yaml:13: steps[2].move: {"consumer": "billing", "to": "us-west"}:'
            " billing has finished before this step",
        ),
        ("finish: fast", 'example.yaml:11: steps[0].finish: "fast": fast is not running here'),
        (
            "begin: fast\nfinish: consumers",
            'example.yaml:12: steps[1].finish: "consumers": consumers: no actor is left',
        ),
        (
            "begin: [fast, short]\ndrain: 1s",
            'example.yaml:12: steps[1].drain: "1s": fast publishes without end; put `finish: fast` before',
        ),
    ],
)
def test_an_order_of_steps_that_cannot_be_is_explained(steps: str, problem: str) -> None:
    assert problems_of_steps(steps) == [problem]


EVERY_COUNTER = ", ".join(PROTOCOL_EVENTS)


@pytest.mark.parametrize(
    ("when", "problem"),
    [
        (
            "{region: us-east}",
            f'when: {{"region": "us-east"}}: must have exactly one of {EVERY_COUNTER}, each also',
        ),
        ("{region: us-east, takeover: 1, takeover_more: 1}", "must have exactly one of snapshot_started"),
        ("{region: us-east, snapshot_round: 0}", "when.snapshot_round: 0: must be at least 1"),
        ("{region: us-east, snapshot_round: -2}", "when.snapshot_round: -2: must be at least 1"),
        ("{region: us-east, takeover: 99999999999}", f"takeover: 99999999999: must be at most {COUNT_MAX}"),
        ("{region: us-east, takeover: 1.5}", "when.takeover: 1.5: must be a whole number"),
        ("{region: us-east, takeover: true}", "when.takeover: true: must be a whole number"),
        ("{region: us-east, takeover: '2'}", 'takeover: "2": must be a whole number, written without quotes'),
        ("{region: us-east, snapshot_rounds: 2}", "is not a key here (did you mean 'snapshot_round'?)"),
        ("{region: us-eats, takeover: 1}", 'when.region: "us-eats": must be a region of the topology'),
        ("{takeover: 1}", "when.region: is required"),
        ("us-east", 'when: "us-east": must be a mapping'),
        ("", "`when` names a region and a state, like `{region: us-east, snapshot_round: 2}`"),
        ("{region: us-east, takeover: 1, within: 0s}", 'when.within: "0s": must be greater than 0'),
        ("{region: us-east, takeover: 1, topic: non-persistent://public/default/a}", "is non-persistent"),
        (
            "{region: us-east, update_sent: 1, topic: a/b/c}",
            'topic: "a/b/c": the topology has no namespace a/b',
        ),
        (
            "{region: eu-central, takeover: 1, topic: public/us/a}",
            'region: "eu-central": must be one of namespace public/us\'s: us-east, us-west',
        ),
        (
            "{region: us-east, transaction_ended: 1, topic: orders}",
            "transaction_ended belongs to no topic: omit `topic`",
        ),
        (
            "{region: us-east, metadata_event_applied: 1}",
            "us-east does not synchronise metadata with other clusters",
        ),
    ],
)
def test_a_wrong_barrier_is_explained(when: str, problem: str) -> None:
    (found,) = problems(scenario_text(f"kill: us-east\nwhen: {when}"))
    assert found.startswith("example.yaml:1"), found
    assert problem in found


def test_a_barrier_belongs_to_any_verb_and_to_its_text() -> None:
    steps = "begin: all\nkill: us-east\nwhen: {region: us-east, snapshot_round_more: 2, topic: orders}"
    first, second = parse(scenario_text(steps)).steps
    assert first.when is None
    assert second.verb == "kill"
    assert second.when is not None
    assert second.when.state == ProtocolState("snapshot_round", 2, from_now=True, topic=ORDERS)
    assert second.when.within == 30
    assert second.text == "kill: us-east, when: {region: us-east, snapshot_round_more: 2, topic: orders}"


@pytest.mark.parametrize(
    "ends",
    ["kill: us-east", "stop: {cluster: americas}", "pause: us-east", "lose: us-east", "power_loss: us-east"],
)
def test_a_region_that_is_down_reaches_no_state(ends: str) -> None:
    verb = ends.partition(":")[0]
    text = scenario_text(f"{ends}\nphase: later\nwhen: {{region: us-east, takeover: 1}}")
    assert problems(text) == [
        f'example.yaml:13: steps[1].when.region: "us-east": us-east reaches no state after `{verb}` in step 1:'
        " start or resume it before"
    ]
    again = "resume" if verb == "pause" else "start"
    parse(text.replace("  - phase: later", f"  - {again}: us-east\n  - phase: later"))


def test_the_topology_must_have_what_a_barrier_waits_for() -> None:
    barrier = "    when: {region: us-east, %s: 1}\n"
    without = TOPOLOGY.with_regions(
        lambda region: replace(region, settings=replace(region.settings, transaction_coordinators=0))
    )
    alone = replace(without, namespaces=(replace(TOPOLOGY.namespaces[0], regions=("us-east",)),))
    text = (
        "name: a\ntopic: orders\nactors: {consumers: [{name: c, region: us-east, subscription: s}]}\nsteps:\n"
    )
    for topology, event, problem in (
        (without, "transaction_opened", "us-east has no transaction coordinators"),
        (alone, "snapshot_round", "us-east replicates to no other region"),
        (alone, "update_sent", "us-east replicates to no other region"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            parse_scenario(f"{text}  - kill: us-east\n{barrier % event}", topology)
        parse_scenario(f"{text}  - kill: us-east\n{barrier % event}", TOPOLOGY)
    parse_scenario(f"{text}  - kill: us-east\n{barrier % 'takeover'}", alone)


def test_actors_need_a_namespace_that_their_region_has() -> None:
    text = scenario_text("begin: fast")
    assert problems(text.replace("topic: orders", "topic: public/defualt/orders"))[0] == (
        'example.yaml:2: topic: "public/defualt/orders": the topology has no namespace public/defualt'
        " (did you mean 'public/default'?)"
    )
    assert problems(text.replace("topic: orders", "topic: public/us/orders")) == [
        'example.yaml:6: actors.producers[1].region: "eu-central":'
        " must be one of namespace public/us's: us-east, us-west"
    ]


def test_a_topic_that_keeps_nothing_is_refused_in_one_sentence() -> None:
    text = scenario_text("begin: fast")
    assert problems(text.replace("topic: orders", "topic: non-persistent://public/default/orders"))[0] == (
        'example.yaml:2: topic: "non-persistent://public/default/orders": is non-persistent, so its messages'
        " cannot be verified: use a persistent topic"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: [a\nsteps: }", "example.yaml:2: must be valid YAML: "),
        ("", "example.yaml:1: null: must be a mapping"),
        ("- a\n- b", 'example.yaml:1: ["a", "b"]: must be a mapping'),
        ("just text", 'example.yaml:1: "just text": must be a mapping'),
        ("name: a\nname: b", "example.yaml:2: name: must occur once; it is already on line 1"),
        ("actors: {producers: 5}", "example.yaml:1: actors.producers: 5: must be a list"),
        ("actors: [a]", 'example.yaml:1: actors: ["a"]: must be a mapping'),
        ("steps: [5]", "example.yaml:1: steps[0]: 5: must be a mapping"),
        ("steps: []", "example.yaml:1: steps: []: must not be empty"),
        ("{[a]: b}", "example.yaml:1: must have plain text as keys"),
        ("name: producers", "example.yaml:1: name: \"producers\": 'producers' is reserved"),
        ("name: *undefined", "example.yaml:1: must be valid YAML: "),
        ("5: 6", "example.yaml:1: 5: 6: is not a key here"),
    ],
)
def test_text_that_is_no_scenario_gets_an_answer_too(text: str, problem: str) -> None:
    found = problems(text)
    assert any(each.startswith(problem) for each in found), found


def test_a_scenario_overrides_settings_of_its_regions_and_no_others() -> None:
    text = scenario_text("begin: fast") + "settings: {metadata_sync_hybrid_clocks: true}\n"
    played = parse_scenario(text, TOPOLOGY).settings.obeyed_by(TOPOLOGY)
    for region, declared in zip(played.regions, TOPOLOGY.regions, strict=True):
        assert region.settings == replace(declared.settings, metadata_sync_hybrid_clocks=True)
    assert problems(text.replace("hybrid_clocks: true", "hybrid_clock: true"))[0].endswith(
        "(did you mean 'metadata_sync_hybrid_clocks'?)"
    )


def test_a_missing_file_is_reported_with_the_scenarios_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_scenario(tmp_path / "nothing.yaml", TOPOLOGY)
    assert "no such file; geoemu includes" in str(refused.value)
    assert "region-failover" in str(refused.value)


def test_the_shipped_schema_is_the_one_of_the_definitions() -> None:
    """If not: python -m emulator.scenarios.format.scenario_file > emulator/schemas/scenario.schema.json"""
    assert json.loads(SCHEMA.read_text()) == json_schema()


def test_calls_of_the_admin_api_clocks_and_answers() -> None:
    scenario = parse_scenario(
        """
name: race
topic: persistent://public/default/orders
actors:
  producers: [{name: maker, region: us-east}]
steps:
  - skew: {region: us-east, by: -1.5s}
  - admin: {calls: [{region: us-east, method: POST, path: /a, body: 1, status: 204}]}
  - admin:
      - {region: us-east, method: DELETE, path: /a, status: [204, 404]}
      - {region: us-west, method: GET, path: /b}
  - wait_until: {region: us-west, get: /a, is: {limit: 1}, within: 2s}
""",
        TOPOLOGY,
    )
    skew, one, two, said = (step.action for step in scenario.steps)
    assert isinstance(skew, Skew)
    assert skew.by == -1_500
    assert isinstance(one, AdminCalls)
    assert (one.calls[0].body, one.calls[0].status) == (1, (204,))
    assert isinstance(two, AdminCalls)
    assert [call.status for call in two.calls] == [(204, 404), ()]
    assert isinstance(said, AdminCondition)
    assert said.value == {"limit": 1}


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        ("skew: {region: us-east, by: +2000m}", "at most a day"),
        ("skew: {region: us-east, by: +-2s}", "at most a day"),
        ("skew: {region: mars, by: 2s}", "must be a region of the topology"),
        ("admin: [{region: us-east, method: HEAD, path: /a}]", "method"),
        ("admin: [{region: us-east, method: GET, path: 'a b'}]", "path"),
        ("admin: []", "must not be empty"),
        ("wait_until: {region: mars, get: /a, is: 1}", "must be a region of the topology"),
    ],
)
def test_invalid_steps_with_admin_requests_are_rejected(step: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(complaint)):
        parse_scenario(
            "name: race\ntopic: persistent://public/default/orders\nactors:\n  producers:"
            f" [{{name: maker, region: us-east}}]\nsteps:\n  - {step}\n",
            TOPOLOGY,
        )


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("disk: {region: us-east, is: broken}", "slow"),
        ("disk: {region: us-east, is: full, by: 5ms}", "requires `is: slow`"),
        ("disk: {region: us-east, is: slow, by: 61s}", "at most 60s"),
        ("disk: {region: mars, is: full}", "must be a region of the topology"),
        ("disk: us-east", "disk"),
        ("power_loss: mars", "must be a region of the topology"),
        ("power_loss: []", "power_loss"),
        ("skew: {region: us-east, by: 1s, drift: 200}", "drift with its unit"),
        ("skew: {region: us-east, by: 1s, drift: 100001ppm}", "from -100000 to 100000 ppm"),
    ],
)
def test_a_machine_step_without_meaning_is_refused(step: str, error: str) -> None:
    assert error in "\n".join(problems_of_steps(step))
