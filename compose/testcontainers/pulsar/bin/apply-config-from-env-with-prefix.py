#!/usr/bin/env python3
"""Write the environment variables <prefix><name> into configuration files."""

import sys

from emulator.broker.standalone.config_file import main_with_prefix

sys.exit(main_with_prefix(sys.argv[1:]))
