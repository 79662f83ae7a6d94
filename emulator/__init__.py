"""geoemu: an emulator of geo-replicated Apache Pulsar.

The map, top to bottom; imports only ever point down (checked by `lint-imports`):

    cli                     what a person types
    simulation              the broker that ships, under virtual time
    scenarios               a story, its actors, its end
    runtimes                where regions run: processes, containers
    broker                  one region: a room each for commands, topics, subscriptions, replication, admin
    client                  our own asyncio client of Pulsar's protocol
    storage                 what a region remembers: one contract, several backends
    wire                    bytes, commands, answers; protobuf ends here
    core                    every rule, as pure state machines
    topology*, yaml_file    what a person declares, checked and frozen
    admin_calls             a client for the regions' HTTP ports
    region_config, history, network, stored_keys
    markers, compatibility, explanations
    model, errors, spelling
"""

__version__ = "0.1.0"
