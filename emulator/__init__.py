"""geoemu: an emulator of geo-replicated Apache Pulsar.

The map, top to bottom; imports only ever point down (checked by `lint-imports`):

    cli, pytest_plugin      what a person types
    scenarios               a story, its history, its end
    runtimes                where regions run: processes, containers, simulated
    simulation              the same broker under virtual time
    broker                  one region: sockets, admin HTTP, links to other regions
    client                  our own asyncio client of Pulsar's protocol
    storage                 what a region remembers: one contract, several backends
    wire                    bytes and commands
    core                    every rule, as pure state machines
    topology, region_config, history, faults
    model, errors           nouns and errors
"""

__version__ = "0.1.0"
