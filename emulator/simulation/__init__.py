"""Simulated hosts, network and disks: programs run under one virtual clock, and one seed decides every outcome.

    simulation          entry point: hosts, network, disks; runs a coroutine to its end
    virtual_time        virtual clock and order of hosts; wall clocks with offset and drift
    scheduler, loop     asyncio for one program: callbacks and timers; tasks, network and signals
    host                a program that runs, is paused, is killed and is started again
    network             host names, and the faults of links: cut, hold, heal, reset
    link, connection    TCP connections, with the guarantees of TCP and no more
    disk, remote_log    storage, with the guarantees of the storage contract and no more
    determinism_guard   rejects calls that reach real clocks, files, sockets or threads
    trace               the hash that identifies a run
    region, world       regions, links and clients of a topology
    scenarios           runs a scenario file in a world, and checks its logs and histories

Only `region` and the modules that use it import the broker. Generated workloads, faults and mutants are in
`tests/swarm`.
"""
