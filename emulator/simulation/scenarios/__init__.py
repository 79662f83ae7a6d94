"""Scenario files in virtual time: the simulated runtime, and actors that use geoemu's own client.

runtime    implements `runtimes.contract.Runtime` with a simulated world
actors     producers and consumers of a scenario file, on simulated hosts
run        one seed of one scenario, from `up` to the verdict
hosts      hosts that own topics, tasks, and producers that wait for exclusive access, on simulated hosts
figures    measured values of a run: fail-over gaps, repeated receives, the load of hosts
"""
