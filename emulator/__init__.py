"""geoemu: an emulator of geo-replicated Apache Pulsar.

The map, top to bottom; imports only ever point down (checked by `lint-imports`):

    cli                     the commands of `geoemu`
    simulation              the shipped broker under virtual time
    scenarios               the scenario format, its actors and its runner
    recording, tap          histories of user programs: the library wrapper, the proxy on the wire
    runtimes                where regions run: processes, containers
    broker                  one region: commands, topics, subscriptions, replication, transactions, admin API
    client                  our own asyncio client of Pulsar's protocol
    storage                 the log and the key-value part of a region: one contract, several backends
    wire                    frames, commands, metadata; protobuf ends here
    core                    every rule, as pure state machines
    topology, topology_*, yaml_file
                            the declared topology: read, checked, filled in and frozen
    admin_calls             HTTP client of the regions' admin ports
    region_config, network  the configuration of one region; the network contract
    stored_keys             keys of a region's store and of the configuration store
    history, history_format the history of clients
    answers, limits, made_by
                            service contracts, limits of a run, the manifest of a run
    markers, compatibility  values of PIP-33's markers, switches to upstream's behaviour
    explanations, reasons   the form of explanations; every reason that one can give
    transaction_names, key_hash, murmur
                            names of transactions and keys; hashes of message keys
    model, errors, spelling, renamed, addresses, lost_stores
                            values and errors that all packages share, suggestions, renamed names, addresses of
                            hosts, lost configuration stores
    schemas                 JSON Schemas of topology, cluster, scenario and history files
"""

__version__ = "0.1.0"
