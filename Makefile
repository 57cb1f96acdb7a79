# Every target makes the virtual environment it needs: only python3 (3.11 or newer, with venv) and make are expected.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check lint bench faults native clean

help:  ## Show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## Train a model on real rows by SQL, watch it, predict with it (needs a minute)
	@$(BIN)/mldb demo $(ARGS)

test: $(VENV)/.dev  ## Run the tests, README sessions among them (ARGS="-k name" picks some)
	$(BIN)/python -m pytest $(ARGS)

check: lint test  ## Lint, format, types, import contracts and the tests

lint: $(VENV)/.dev  ## Only the checks that run nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@# APSW waits with the GIL held there, which freezes every thread of the process.
	@! grep -rnE '^ *([a-z_.]+\.transaction_mode =|with [a-z_.]*(connection|reader|writer|db)( as [a-z_]+)?:)' --include=*.py mldb

native: build/ml_jobs.so  ## Build the loadable library for the sqlite3 shell and other programs (SANITIZE=1: with AddressSanitizer)

bench: $(VENV)/.dev  ## Measure submits and jobs per second beside plain SQLite
	@for script in benchmarks/bench_*.py; do $(BIN)/python $$script $(ARGS) || exit 1; done

faults: $(VENV)/.dev  ## Run the long fault suites
	@# pytest answers 5 when ARGS picks none of them. Where SQLite has no caller to tell of a failing disk, as in a
	@# close, APSW reports the error as one that nobody could catch; that is what these suites provoke.
	$(BIN)/python -m pytest -m fault -p no:unraisableexception $(ARGS) || test $$? -eq 5

build/ml_sql.h: mldb/native/generate.py mldb/*.py $(wildcard sql/*.sql sql/migrations/*.sql)
	$(PYTHON) mldb/native/generate.py $@
	@touch $@

build/ml_jobs.so: $(wildcard mldb/native/*.c mldb/native/*.h) build/ml_sql.h
	$(CC) -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -g $(if $(SANITIZE),-fsanitize=address -fno-omit-frame-pointer) \
	  -fPIC -shared -fvisibility=hidden -Ibuild mldb/native/*.c -o $@

clean:  ## Remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The library that is installed is built from these.
LIBRARY = setup.py $(wildcard mldb/native/* sql/*.sql sql/migrations/*.sql)

$(VENV)/.dev: pyproject.toml $(filter-out %.so,$(LIBRARY)) $(VENV)/.made
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,ml]'
	@touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.made
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@
