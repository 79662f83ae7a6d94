"""Contract files: one gate, and each problem with its line and rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.errors import ConfigurationError, Refused
from emulator.run.limits import LIMITS_FILE, Limit
from emulator.run.service_contract import Contract, read_answers
from emulator.scenarios.contract_file import DeliveryTerms, load_contract

COMPLETE = """
topic: orders
contract:
  - {subscription: billing, on: invoices}
  - {subscription: stock, of: persistent://public/other/goods, on: moves}
expect: {unrecovered: 0, gap: 5s}
"""


def load(folder: Path, text: str | bytes) -> DeliveryTerms:
    file = folder / "contract.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_contract(file)


def test_a_file_contains_contracts_and_limits(tmp_path: Path) -> None:
    terms = load(tmp_path, COMPLETE)
    assert terms.contract == (
        Contract.between("billing", "orders", "invoices"),
        Contract.between("stock", "persistent://public/other/goods", "moves"),
    )
    assert terms.limits == (Limit("unrecovered", None, "<=", 0.0), Limit("gap", None, "<=", 5.0))


def test_stored_terms_replace_only_what_the_file_contains(tmp_path: Path) -> None:
    load(tmp_path, COMPLETE).store(tmp_path)
    load(tmp_path, "expect: {lag: 1s}").store(tmp_path)
    assert len(read_answers(tmp_path)) == 2
    assert (tmp_path / LIMITS_FILE).read_text() == "lag<=1s\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ":1: null: must be a mapping"),
        ("[]", "must be a mapping"),
        ("{}", "must contain `contract`, `expect` or both"),
        ("contract: []\nexpect: {}\n", "must contain `contract`, `expect` or both"),
        (
            "contract:\n  - {subscription: billing, on: invoices}\n",
            ':2: contract[0]: {"subscription": "billing", "on": "invoices"}: requires `of`',
        ),
        ("topic: a\ncontract: [{subscription: b, on: a}]\n", ':2: contract[0].on: "a": must be another'),
        (
            "topic: a\ncontract:\n- {subscription: b, on: c}\n- {subscription: b, on: c}\n",
            '"on": "c"}: repeats an earlier',
        ),
        ("topic: a\ncontract: [{subscription: '', on: b}]\n", ":2: contract[0].subscription"),
        ("topic: a\ncontract: [{on: b}]\n", "contract[0].subscription"),
        ("topic: a\ncontract: {subscription: b, on: c}\n", ":2: contract"),
        ("topic: non-persistent://public/default/a\nexpect: {lag: 1s}\n", ":1: topic:"),
        ("topic: a\nanswers: [{subscription: b, on: c}]\n", "answers was renamed to contract"),
        ("expect: {lagg: 1s}\n", "did you mean 'lag'?"),
        ("expect: {lag: 1}\n", ":1: expect.lag: 1:"),
        ("expect: {unrecovered: -1}\n", ":1: expect.unrecovered: -1:"),
        ("name: x\nexpect: {lag: 1s}\nsteps: []\n", ":3: steps"),
        ("a: &a [*a]\n", "contract.yaml"),
        (b"\xff\xfe", "must be UTF-8 text"),
        ("contract: [", "contract.yaml:"),
    ],
)
def test_each_problem_has_its_place_and_rule(tmp_path: Path, text: str | bytes, found: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        load(tmp_path, text)
    assert found in str(refusal.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "no.yaml", "no such file"), (tmp_path, "it is a directory")):
        with pytest.raises(ConfigurationError, match=why):
            load_contract(path)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"cannot be stored in .*: No such file or directory"):
        load(tmp_path, COMPLETE).store(tmp_path / "gone")
