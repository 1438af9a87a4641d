# `make demo` shows the main job, `make test` passes the tests. Both set up what they need in .venv, once.
.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
# Nothing of pip's is left outside the clone either, also by the one that builds in isolation.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test check bench schemas clean

help:
	@echo "make demo    show what mur does, on three sessions in a temporary home"
	@echo "make test    run the tests"
	@echo "make check   run the linters, the type checker and the layer contracts"
	@echo "make bench   measure the commands, as ratios to an empty Python"
	@echo "make schemas write the JSON Schemas of the door's payloads to docs/schemas"
	@echo "make clean   remove everything that make made"

demo: $(VENV)/.runtime
	@$(BIN)/python examples/demo.py

# In a directory of its own, so that nothing of it is left anywhere.
test: $(VENV)/.test
	@place=$$(mktemp -d) && chmod 755 "$$place" && trap 'rm -rf "$$place"' EXIT && TMPDIR="$$place" $(BIN)/python -m pytest --basetemp "$$place/t"

check: $(VENV)/.test
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin
	$(BIN)/mypy tests bench examples
	$(BIN)/lint-imports

bench: $(VENV)/.test
	@$(BIN)/python -m bench

schemas: $(VENV)/.test
	@$(BIN)/python -m murmur.adapters.schema_files docs/schemas

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	find adapters bench cli domain examples tests -name __pycache__ -prune -exec rm -rf {} +

# What each stamp names is installed. Compiling once keeps the commands' start-up short even where Python may not
# write its caches.
$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing what mur needs into $(VENV) ..." >&2
	@$(PIP) --editable .
	@$(BIN)/python -m compileall -q domain adapters cli
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing what mur and its tests need into $(VENV) ..." >&2
	@$(PIP) --editable '.[test]'
	@$(BIN)/python -m compileall -q domain adapters cli
	@touch $@ $(VENV)/.runtime

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { \
		echo "make: no Python of version 3.11 or later was found; install one, or name it: make PYTHON=/path/to/python3" >&2; \
		exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: $(PYTHON) is no Python of version 3.11 or later" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: $(PYTHON) has no venv module; install it (Debian, Ubuntu: apt install python3-venv), then try again" >&2; \
		exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
