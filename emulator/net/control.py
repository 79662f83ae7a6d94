"""The credential by which geoemu's own programs control the regions of a run at their HTTP ports.

It is derived from the run's secret, which the run directory contains and only the owner of that can read. The secret
itself is never sent.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

SCHEME: Final = "Geoemu"
"""Scheme of the header: `Authorization: Geoemu <hex>`."""


def control_credential(run_secret: str) -> str:
    """Return the credential as hexadecimal text."""
    return hmac.digest(run_secret.encode(), b"control", hashlib.sha256).hex()


def read_control(path: str) -> str:
    """Return the value of the header Authorization from the file of a run; empty for no path. Raises OSError."""
    return Path(path).read_text().strip() if path else ""


def control_header(run_secret: str) -> str:
    """Return the value of the header Authorization; empty without a secret."""
    return f"{SCHEME} {control_credential(run_secret)}" if run_secret else ""
