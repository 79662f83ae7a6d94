"""Programs that behave as if they ran on machines of their own, under one virtual clock and one seed.

    simulation          entry point: hosts, network, disks; runs a coroutine to its end
    virtual_time        decides which host runs next; wall clocks with offset and drift
    scheduler, loop     asyncio for one program: callbacks and timers; tasks, network and signals
    host                a program that runs, is paused, is killed and is started again
    network             names, and the faults of links: cut, hold, heal, reset
    link, connection    the guarantees of TCP and no more
    disk, remote_log    the guarantees of the storage contract and no more
    determinism_guard   keeps everything real out of reach
    trace               a run as one number
    region, world       regions, links and clients of a topology
    scenarios           runs a scenario file in a world, and checks what it stored

Only `region`, and what is built on it, knows the broker. Generated workloads, faults and mutants are in `tests/swarm`.
"""
