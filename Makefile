# Everything one does in this checkout. `make` alone lists the targets.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
STAMP := .venv/installed
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
SEEDS ?= 1000
ROW ?=
STORE ?=
SECONDS ?= 60
RUNS ?= 1
ARGS ?=

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: setup
setup: $(STAMP) ## make .venv with everything that building and testing needs

$(STAMP): requirements/dev.txt pyproject.toml scripts/setup.sh scripts/environment.sh scripts/servers.sh scripts/web.sh web/package-lock.json
	@sh scripts/setup.sh
	@touch $@

.PHONY: run
run: ## start the lock service on this machine (PORT=8370), show it at work, and leave it running to try
	@sh scripts/run.sh

.PHONY: test
test: setup lint ## everything that must pass: lint, then all tests (ARGS="…" goes to pytest)
	@$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

.PHONY: lint
lint: setup ## ruff, mypy, pyright, the types of the dashboard and the completeness of public types, side by side
	@$(MAKE) --no-print-directory --output-sync=target --jobs $(JOBS) $(LINTS)

# The longest first. Each checks alone, and says what it found when it is done.
LINTS := lint-pyright lint-mypy lint-web lint-public lint-ruff

.PHONY: $(LINTS)
lint-pyright: setup
	$(BIN)/pyright --warnings

lint-mypy: setup
	$(BIN)/mypy

lint-public: setup
	$(BIN)/python scripts/public_types.py

lint-web: setup
	@sh scripts/web.sh check

lint-ruff: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: web
web: setup ## build the dashboard of web/ into the package, with the pictures of its docs
	@sh scripts/web.sh build
	LEASED_PICTURES=docs/service/images $(BIN)/python -m pytest -q tests/web/test_looks.py -k fits

.PHONY: smoke
smoke: setup ## build the wheel, try it alone and with each extra alone on every Python found (EXTRAS=redis: only that)
	@sh scripts/smoke_wheel.sh

.PHONY: simulate
simulate: setup ## run the engine through SEEDS=1000 worlds in virtual time, then hunt every planted bug; failures print seeds
	$(BIN)/python -m leased.testing.simulation --seeds $(SEEDS)
	$(BIN)/python -m leased.testing.simulation --bugs --seeds 4000
	$(BIN)/python -m leased.testing.simulation --exhaust 3

.PHONY: soak
soak: setup ## a million cycles and much else: nothing may grow (STORE=redis: only that); then the proofs
	$(BIN)/python -m nemesis.soak $(STORE) $(ARGS)
	$(if $(STORE),,$(MAKE) proofs)

.PHONY: proofs
proofs: setup ## what tests draw at random, in great numbers: histories, interleavings, restarts, requests of all kinds
	LEASED_SOAK=1 INTERLEAVINGS=10000 LEASED_AGREEMENT_TIMES=20 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal \
		tests/server/proof tests/server/test_interleavings.py tests/contract tests/stores/http/test_contract.py \
		tests/stores/servers/test_breaking.py tests/stores/cas/test_spoiled_answers.py

.PHONY: nemesis
nemesis: setup ## break servers under workers and judge what these saw (STORE="redis-cluster": only that, RUNS=1 of SECONDS=60)
	$(BIN)/python -m nemesis $(STORE) --runs $(RUNS) --seconds $(SECONDS) $(ARGS)

.PHONY: fuzz
fuzz: setup ## feed every parser what nobody would send (SECONDS=60 for each; ARGS="urls rules": only these)
	$(BIN)/python -m fuzz $(ARGS) --seconds $(SECONDS)

.PHONY: mutate
mutate: setup ## change the core in small ways and see that the tests notice (ARGS="leased.queue": only that module)
	$(BIN)/python -m mutation $(ARGS)

.PHONY: mutants
mutants: setup ## plant mistakes in the scripts and statements of the stores, for the contract suite to find on real servers
	LEASED_MUTANTS=all $(BIN)/python -m pytest -n $(JOBS) tests/mutants

.PHONY: bench
bench: setup ## measure against floors and peers, write docs/benchmarks.md (ROW="memory-pair import": only these rows)
	$(BIN)/python -m bench $(ROW)

.PHONY: format
format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: reference
reference: setup ## write the generated pages of docs/reference and man/leased.1 anew
	@$(BIN)/python scripts/reference.py
	@$(BIN)/python scripts/manpage.py

.PHONY: changelog
changelog: setup ## gather changes/ into CHANGELOG.md for a release (ARGS=--draft: only print what it would say)
	@$(BIN)/python scripts/changelog.py $(ARGS)

.PHONY: docs
docs: setup ## build the documentation's site into site/; a warning or a dead link fails
	$(BIN)/python -m zensical build --strict --clean

.PHONY: lock
lock: setup ## renew requirements/dev.txt from dev.in
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --upgrade requirements/dev.in --output-file requirements/dev.txt

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf .venv .run web/node_modules .bench .nemesis dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf .cache site
