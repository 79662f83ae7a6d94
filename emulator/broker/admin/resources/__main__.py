"""`python -m emulator.broker.admin.resources docs/ADMIN.md` rewrites the tables of that page."""

from __future__ import annotations

import sys
from pathlib import Path

from emulator.broker.admin.openapi import with_tables
from emulator.broker.admin.resources import SUBJECTS

if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_tables(page.read_text(), SUBJECTS))
