"""Draw the plan of a run from its seed: workloads, topology and faults are all drawn before the run starts."""
