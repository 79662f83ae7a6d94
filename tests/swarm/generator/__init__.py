"""From a seed to a plan. Everything is drawn here, nothing while the plan runs."""
