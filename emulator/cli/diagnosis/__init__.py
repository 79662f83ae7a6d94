"""The checks of `geoemu doctor`: each returns findings about this machine, its engines, the topology or its runs.

finding    what a check found, and its fix
machine    Python, packages, file descriptors, disk space, the folder, the clock
engines    engines of verdicts, Docker, Compose, images, Kafka
topology   errors of the files, ports that are in use
runs       runs that have not ended, and processes that were left behind
"""
