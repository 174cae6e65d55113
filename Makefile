.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: help setup check test lab lab-down
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## the Python environment (.venv), from the lock file
$(VENV)/.ready: requirements.lock pyproject.toml tools/bootstrap.sh
	@sh tools/bootstrap.sh

lab: setup ## a lab that stays: control plane, Prometheus, GPU nodes, operator (OPERATOR=0, NODES=, LOAD_SECONDS=)
	@$(PY) -m e2e.lab up

lab-down: setup ## stop the lab and remove .lab
	@$(PY) -m e2e.lab down
