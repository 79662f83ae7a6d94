"""A person's own scenario under virtual time: the third runtime, and actors that play parts with our client.

runtime    a world as a place to run regions
actors     producers and consumers of a scenario file, in the world
run        one seed of one scenario, from up to the verdict
hosts      hosts that own topics, and producers that wait for one, on simulated hosts
figures    what a run measured: fail-over gaps, messages received again, the load of hosts
"""
