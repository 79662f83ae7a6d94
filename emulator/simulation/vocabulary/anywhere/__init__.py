"""Words of every swarm: what may happen beside anything else."""
