"""A region whose store acknowledges commits before they are synced: a mutant. Not a test."""

from __future__ import annotations

import sys

from emulator.broker.main import main
from emulator.storage.sqlite import file

if __name__ == "__main__":
    file.SYNCHRONOUS = "OFF"
    sys.exit(main(sys.argv[1:]))
