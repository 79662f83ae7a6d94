"""Read a contract file: what a service must deliver in a run that was driven by hand.

    topic: orders
    contract:
      - {subscription: billing, on: invoices}
    expect: {unrecovered: 0, gap: 5s}

The keys are those of a scenario file (docs/SCENARIOS.md). Their values are stored in the run directory, as those of a
scenario are, so that every later verdict on the run checks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from emulator.config.renamed import report_renamed
from emulator.config.yaml_source import YamlFile, read_yaml
from emulator.errors import ConfigurationError, Refused
from emulator.run.limits import LIMITS_FILE, Limit, as_text
from emulator.run.service_contract import Contract, write_contract
from emulator.scenarios.format.scenario_file import ContractEntry, Expected
from emulator.scenarios.format.types import LIST, FormatModel, Topic


class _ContractFile(FormatModel):
    topic: Topic | None = None
    """Default input topic of the contracts."""
    contract: Annotated[tuple[ContractEntry, ...], LIST] = ()
    """Contracts of services."""
    expect: Expected = Field(default_factory=Expected)
    """Limits of figures."""


@dataclass(frozen=True, slots=True)
class DeliveryTerms:
    """The validated content of a contract file; at least one part is not empty."""

    contract: tuple[Contract, ...]
    limits: tuple[Limit, ...]

    def store(self, run_dir: Path) -> None:
        """Write each part that is not empty to a run directory, instead of the one that is there. Raises Refused if
        that fails."""
        try:
            if self.contract:
                write_contract(run_dir, self.contract)
            if self.limits:
                (run_dir / LIMITS_FILE).write_text(as_text(self.limits) + "\n")
        except OSError as problem:
            raise Refused(f"the contract cannot be stored in {run_dir}: {problem.strerror}") from problem


def load_contract(path: Path) -> DeliveryTerms:
    """Read and check a contract file. Raises ConfigurationError with every problem, each with its line and rule."""
    file = read_yaml(path)
    report_renamed(file)
    written = file.check(_ContractFile)
    if written is not None:
        _check_content(file, written)
    if file.problems:
        raise ConfigurationError(sorted(file.problems, key=lambda problem: problem.line or 0))
    assert written is not None, "an invalid file has at least one problem"
    contract = tuple(entry.promised(written.topic or "") for entry in written.contract)
    return DeliveryTerms(contract, written.expect.limits)


def _check_content(file: YamlFile, written: _ContractFile) -> None:
    """Report contracts without an input topic or with the output topic as input, and a file that requires nothing."""
    if file.problems:
        return  # entries with a problem were removed, so indices would be those of other entries
    for index, entry in enumerate(written.contract):
        topic = entry.of or written.topic
        if topic is None:
            file.report(("contract", index), "requires `of`, the input topic, or `topic` for the whole file")
        elif topic == entry.on:
            file.report(("contract", index, "on"), "must be another topic than the input topic")
        elif entry in written.contract[:index]:
            file.report(("contract", index), "repeats an earlier contract")
    if not written.contract and not written.expect.limits:
        file.report((), "must contain `contract`, `expect` or both")
