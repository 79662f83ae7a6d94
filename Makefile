# Each goal first sets up what it needs; later runs find it installed.

PYTHON   ?= python3
SCENARIO ?= emulator/scenarios/region-failover.yaml
# What to set up for: light, run, compose, test, site, bench or fast.
GOAL     ?= test
# process or compose; empty: what topology.yaml says.
RUNTIME  ?=
# Engine of the verdict: spark or embedded, which needs neither Java nor large downloads. Empty: Spark, except for the
# very first verdict.
ENGINE   ?=
# Of `make swarm`: SEEDS seeds from FROM on, on JOBS processes, or one SEED again; WORKLOAD and WITHOUT name a workload and
# a mutant, SHRINK=1 minimises the first failing seed.
SEEDS    ?= 100
FROM     ?= 1
JOBS     ?= 1
# Passed on: make test ARGS="-k topology -x"
ARGS     ?=

VENV := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all test-long swarm bench lint docs site fast slow

help:
	@echo "make run      kill a region of topology.yaml under load and print the verdict (RUNTIME=process|compose, ENGINE=spark|embedded, SCENARIO=file)"
	@echo "make test     run the quick tests, about 5 minutes (ARGS=...)"
	@echo "make test-all run the tests of every commit, including containers, Kafka and Spark, as .ci/run does (ARGS=...)"
	@echo "make test-long run what .ci/run leaves out: all clients, all mutants, 2,000 seeds, 200 moments of kill -9 (hours)"
	@echo "make swarm    run generated workloads and faults in virtual time (SEEDS=200 FROM=1 JOBS=2, or SEED=n; WORKLOAD=, WITHOUT=, SHRINK=1; ARGS=--list)"
	@echo "make docs     write the reference pages of docs/reference/ and the figures of docs/concepts/ from the code"
	@echo "make site     build the documentation site into build/site, and check its links"
	@echo "make lint     check style, types and import rules"
	@echo "make bench    measure against a peer (needs cc); docs/BENCHMARKS.md explains the figures"
	@echo "make fast     compile the modules of a region that gain from it (needs a C compiler); make slow removes them again"
	@echo "make setup    only prepare: .venv, pinned packages, Java"

# What a goal does first: `make setup GOAL=run` installs only what a run and its verdict need.
setup:
	@PYTHON=$(PYTHON) scripts/setup $(GOAL)

# `make` itself only knows 0 and 2 (any failure). `geoemu run` tells them apart: 0 valid, 1 invalid, 2 unknown.
# The very first verdict does not wait for Spark (docs/decisions/0020): each line is a program of its own, so that Ctrl-C and
# `kill` reach it.
PLAIN_RUN  := $(if $(strip $(RUNTIME)$(ENGINE)$(ARGS)),,$(filter run,$(MAKECMDGOALS)))
FIRST_RUN  := $(if $(PLAIN_RUN),$(shell PYTHON=$(PYTHON) scripts/setup --is-done run 2>/dev/null || echo yes))

ifeq ($(FIRST_RUN),yes)
run: GOAL = light
run: setup
	@$(VENV)/geoemu run $(SCENARIO) --engine embedded
	@echo
	@echo "setup: The embedded engine computed this verdict. Spark, which computes the next ones, is downloaded now (0.5 GB)"
	@echo "setup: and verifies this run again. Ctrl-C skips that; make run ENGINE=embedded never downloads Spark"
	@PYTHON=$(PYTHON) scripts/setup run
	@$(VENV)/geoemu verify
else
run: GOAL = $(if $(filter compose,$(RUNTIME)),compose,$(if $(filter embedded,$(ENGINE)),light,run))
run: setup
	@$(if $(filter compose,$(RUNTIME)),bash compose/images.sh region kafka)
	@$(VENV)/geoemu run $(if $(RUNTIME),--runtime $(RUNTIME)) $(if $(filter compose,$(RUNTIME)),-f compose/topology.yaml) $(SCENARIO) $(if $(ENGINE),--engine $(ENGINE)) $(ARGS)
endif

# Two at a time: most of them wait for something most of the time. What is in one file stays together and in order.
# Tests start thousands of programs: each module is compiled once, not by every program.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(VENV)/python -m pytest -n 2 --dist loadfile

test: setup
	@$(PYTEST) -m "not real and not long and not slow" $(ARGS)

test-all: setup
	@$(PYTEST) $(ARGS)

test-long:
	@bash .ci/long

# Exit code of the program: 1 when a seed failed, which `make` itself turns into 2.
swarm: setup
	@$(VENV)/python -m tests.swarm $(if $(SEED),--seeds 1 --from $(SEED),--seeds $(SEEDS) --from $(FROM) --jobs $(JOBS)) \
	    $(if $(WORKLOAD),--workload $(WORKLOAD)) $(if $(WITHOUT),--without $(WITHOUT)) $(if $(SHRINK),--shrink) $(ARGS)

bench: GOAL = bench
bench: setup
	@$(VENV)/python -m benchmarks $(ARGS)

docs: setup
	@$(VENV)/python -m scripts.reference
	@$(VENV)/python -m scripts.async_api
	@$(VENV)/python -m tests.swarm.workloads_table
	@$(VENV)/python -m tests.swarm.invariants_table
	@$(VENV)/python -m tests.spark_jobs.tampering.table
	@$(VENV)/python -m scripts.figures

site: GOAL = site
site: setup
	@$(VENV)/sphinx-build -q -W --keep-going -b html docs build/site $(ARGS)
	@echo "The site: build/site/index.html"

# Regions then spend less processor time on each message (docs/BENCHMARKS.md). A change of a compiled source needs another
# `make fast`: until then, the commands refuse to start.
fast: GOAL = fast
fast: setup
	@$(VENV)/python -m scripts.compile build

slow:
	@$(PYTHON) -m scripts.compile remove

lint: setup
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/mypy
	@$(VENV)/lint-imports
