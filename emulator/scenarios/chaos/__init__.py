"""Random faults under a workload: the plan of a seed (`plan.py`), its execution on a runtime (`execution.py`), and the
scenarios that contain it (`workload.py`)."""
