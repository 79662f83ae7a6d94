"""Verbs that act on the machine of a region: its clock and its disk."""

from __future__ import annotations

import sys

from emulator.cli.application import app, inject
from emulator.cli.curl import NOT_RECORDED, CurlRequest, print_curl
from emulator.cli.fault_options import DiskDelay, DiskStateName, Drift, SignedMilliseconds
from emulator.cli.options import AsCurl, Region, RunDir
from emulator.errors import Refused
from emulator.model.machine import DiskCondition
from emulator.runtimes.faults import ClockFault, DiskFault


@app.command(
    epilog="Example: geoemu skew us-east +250ms --drift 200ppm",
    context_settings={"ignore_unknown_options": True},
)
def skew(
    region: Region,
    time: SignedMilliseconds,
    drift: Drift = None,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Offset a region's wall clock, ahead (+250ms) or behind (-250ms), and let it drift; `0ms` corrects it. Timers are
    unaffected."""
    if as_curl:
        print(NOT_RECORDED, file=sys.stderr)
        body = {"ahead_ms": time} | ({"drift_ppm": drift} if drift else {})
        print_curl(run_dir, CurlRequest("PUT", "/geoemu/v1/clock", body), [region])
        return
    fault = ClockFault(region, time, drift or 0.0)
    inject(run_dir, lambda _: fault)
    print(fault)


@app.command(epilog="Example: geoemu disk us-east full; geoemu disk us-east slow --by 500ms")
def disk(
    region: Region,
    state: DiskStateName,
    by: DiskDelay = None,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Make a region's disk slow, full or failing; `healthy` ends it. A full disk refuses writes. On a failing disk, the
    sync of each write fails, and its outcome is unknown."""
    try:
        condition = DiskCondition.of(state, by)
    except ValueError as problem:
        raise Refused(f"the disk of {region}: {problem}") from None
    if as_curl:
        print(NOT_RECORDED, file=sys.stderr)
        body = {"state": state} | ({"delay_ms": condition.delay_ms} if condition.delay_ms else {})
        print_curl(run_dir, CurlRequest("PUT", "/geoemu/v1/storage", body), [region])
        return
    fault = DiskFault(region, condition)
    inject(run_dir, lambda _: fault)
    print(fault)
