"""Run the command as `python -m emulator.cli`, where `geoemu` is not installed."""

from emulator.cli import main

main()
