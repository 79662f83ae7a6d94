"""geoemu: an emulator of geo-replicated Apache Pulsar.

The map, top to bottom; imports only ever point down (checked by `lint-imports`):

    cli                     the commands of `geoemu`
    dashboard               one web page that shows a run live and injects faults into it
    simulation              the shipped broker under virtual time
    scenarios               the scenario format, its actors and its runner
    recording               histories of user programs: the library wrapper; recording.tap, the proxy on the wire
    runtimes                where regions run: processes, containers
    broker                  one region: commands, topics, subscriptions, replication, transactions, admin API
    client                  our own asyncio client of Pulsar's protocol
    storage                 the log and the key-value part of a region: one contract, several backends
    wire                    frames, commands, metadata; protobuf ends here
    core                    every rule, as pure state machines
    run                     run directory, manifest, limits, histories of clients, service contracts
    config                  the declared topology: read, checked, filled in and frozen; the configuration of a region
    net                     the network contract, addresses, the HTTP client of admin ports, the HTTP server
    model                   pure values that all packages share: positions, markers, stored keys, names, hashes,
                            explanations and reasons
    errors                  the error catalogue
    compiled                which modules may be compiled, and whether the compiled ones are up to date
    schemas                 JSON Schemas of topology, cluster, scenario and history files
"""

__version__ = "0.1.0"
