#!/usr/bin/env python3
"""Write the environment variables PULSAR_PREFIX_<name> into configuration files."""

import sys

from emulator.broker.standalone.config_file import main

sys.exit(main(sys.argv[1:]))
