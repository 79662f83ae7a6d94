"""Named link profiles: the shapes of typical links between data centres, with the sources of their values.

A topology (`profile: satellite`) and the verb `profile` name them. The reference page of topologies prints the table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from emulator.config.link_shape import LinkShape
from emulator.errors import Refused
from emulator.model.suggestions import nearest

LinkProfileName = Literal["same-continent", "transatlantic", "satellite", "lossy-wifi"]


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """The shape of one direction of a typical link."""

    shape: LinkShape
    meaning: str
    """The link that it stands for."""
    source: str
    """The published measurements from which the values are derived, and what was assumed."""


CLOUD_BYTES_PER_SECOND = 625_000_000
"""Limit of one TCP connection between two regions of Amazon EC2: 5 Gbit/s (EC2 user guide, "Amazon EC2 instance network
bandwidth")."""

PROFILES: dict[LinkProfileName, LinkProfile] = {
    "same-continent": LinkProfile(
        LinkShape(latency_ms=10, jitter_ms=1, bandwidth_bytes_per_second=CLOUD_BYTES_PER_SECOND),
        "two cloud regions of one continent, such as Ireland and Frankfurt",
        "Round trips of 19.6 ms between the AWS regions Ireland and Frankfurt, and of 19.4 ms between Northern "
        "California and Oregon (A Computer Scientist Learns AWS, 2017). 5 Gbit/s for one connection (EC2 user guide). "
        "The jitter is assumed.",
    ),
    "transatlantic": LinkProfile(
        LinkShape(latency_ms=44, jitter_ms=2, bandwidth_bytes_per_second=CLOUD_BYTES_PER_SECOND),
        "two cloud regions on both sides of the Atlantic, such as Northern Virginia and Frankfurt",
        "Round trips of 88.6 ms between the AWS regions Northern Virginia and Frankfurt (A Computer Scientist Learns "
        "AWS, 2017); Verizon guarantees 90 ms between New York and London. 5 Gbit/s for one connection (EC2 user "
        "guide). The jitter is assumed.",
    ),
    "satellite": LinkProfile(
        LinkShape(latency_ms=300, jitter_ms=70, bandwidth_bytes_per_second=1_250_000),
        "a link over a geostationary satellite",
        "Round trips of about 600 ms (Huston, APNIC 2022), of which propagation is up to 558 ms (RFC 2488). A mean "
        "jitter of 35 ms, half of the maximum (measurements of the Polish regulator UKE, 2011). 10 Mbit/s (Tooway on "
        "KA-SAT).",
    ),
    "lossy-wifi": LinkProfile(
        LinkShape(latency_ms=1, jitter_ms=17, stall_every_ms=1_800, stall_ms=250),
        "a wireless link that loses packets. TCP sends them again: no byte is lost, but bytes arrive late",
        "More than half of the TCP packets at 47 access points waited longer than 20 ms for the Wi-Fi hop, which is a "
        "round trip, and 10 % longer than 100 ms; the longest delay in one place was 250 ms (Pei et al., INFOCOM "
        "2016).",
    ),
}
"""Profile by name. Latencies are one-way: half of the published round trip."""


def profile_name(text: str) -> LinkProfileName:
    """Return `text` if it is the name of a profile. Raises Refused, with the nearest name, if not."""
    for name in PROFILES:
        if name == text:
            return name
    guess = nearest(text, tuple(PROFILES))
    hint = f"did you mean {guess}? " if guess else ""
    raise Refused(f"no link profile {text!r}: {hint}profiles are {', '.join(PROFILES)}")


def profile_fields(name: LinkProfileName) -> dict[str, Any]:
    """Return the fields of a link that a profile sets: all but its state and faults of single frames."""
    fields = asdict(PROFILES[name].shape)
    del fields["state"], fields["frame_faults"]
    return fields


def profile_of(shape: LinkShape) -> LinkProfileName | None:
    """Return the name of the profile with exactly these values, whatever the state of the link; None: there is none."""
    up = replace(shape, state="up")
    return next((name for name, profile in PROFILES.items() if profile.shape == up), None)
