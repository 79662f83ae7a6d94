"""Programs that believe to run on machines of their own, under one virtual clock and one seed.

    simulation   the door: hosts, network, disks, a story that is told to its end
    loop         asyncio under virtual time; whose turn it is
    host         a program that lives, is frozen, dies and is started again
    network      names, links per direction: cut, hold, heal, reset
    connection   TCP's promises and no more
    disk         the storage contract's promises and no more
    clocks       wall clocks that are wrong
    guard        nothing real is within reach
    trace        a run as one number

Nothing in here knows the broker, except for `world` and what is built on it.
"""
