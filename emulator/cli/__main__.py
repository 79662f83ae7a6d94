"""`python -m emulator.cli`: the command where it was not installed."""

from emulator.cli import main

main()
