"""Programs that behave as if they ran on machines of their own, under one virtual clock and one seed.

    simulation          entry point: hosts, network, disks; runs a coroutine to its end
    loop                asyncio in virtual time; decides which host runs next
    host                a program that runs, is paused, is killed and is started again
    network             names, links per direction: cut, hold, heal, reset
    connection          the guarantees of TCP and no more
    disk, remote_log    the guarantees of the storage contract and no more
    clocks              wall clocks with offset and drift
    determinism_guard   keeps everything real out of reach
    trace               a run as one number
    world               regions, links and clients of a topology
    scenarios           runs a scenario file in a world, and checks what it stored

Only `world`, and what is built on it, knows the broker. Generated workloads, faults and mutants are in `tests/swarm`.
"""
