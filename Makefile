# Onym. `make run` answers a prompt with a real model; `make test` runs every test.
# Both set up all they need (Python 3.11+ and a package registry are enough) and may be run again.

PYTHON ?= python3
PROMPT ?= What is the capital of France?
URI    ?= llm://embedded/smollm2-135m-instruct?temp=0&max_tokens=64
# one more than processors: tests wait for servers, browsers and packages about a quarter of the time
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
# each interpreter that PYTHON names has its own environment: `make test PYTHON=python3.13` uses .venv-3.13
VENV   ?= $(if $(findstring command line,$(origin PYTHON)),.venv-$(shell $(PYTHON) tools/uv.py --python-tag),.venv)
BIN    := $(VENV)/bin
UV     := UV_PROJECT_ENVIRONMENT=$(VENV) $(PYTHON) tools/uv.py

.DEFAULT_GOAL := help
.PHONY: help run quick test demo-ai peer-vllm peer-a2a lowest package lint types floors docs bench fuzz lock clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.run: pyproject.toml uv.lock
	@echo "make: installing Onym with the embedded model's runtime into $(VENV)"
	@$(UV) sync --quiet --locked --inexact --no-default-groups --extra embedded
	@touch $@

$(VENV)/.test: pyproject.toml uv.lock
	@echo "make: installing Onym and its test tools into $(VENV)"
	@$(UV) sync --quiet --locked --inexact --all-extras --compile-bytecode
	@touch $@ $(VENV)/.run

run: $(VENV)/.run ## one prompt to the embedded model, through an llm:// URI (PROMPT=…, URI=…)
	@$(BIN)/onym models pull smollm2-135m-instruct
	@echo 'make: onym chat "$(URI)" "$(PROMPT)"'
	@$(BIN)/onym chat --stream "$(URI)" "$(PROMPT)"

quick: $(VENV)/.test ## smoke tests and the tests of changed files, within a minute
	@$(BIN)/python tools/quick.py

test: $(VENV)/.test ## every test (COVERAGE=1: with the coverage floors, a third more work)
	@$(BIN)/onym models pull smollm2-135m-instruct
	@$(if $(COVERAGE),$(BIN)/coverage erase)
	@# PYTHONMALLOC: the checks of C memory that -X dev adds find nothing in Python code and take a tenth of the time
	PYTHONMALLOC=default $(BIN)/python -X dev -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(if $(COVERAGE),--cov --cov-report=) $(ARGS)
	@$(if $(COVERAGE),$(BIN)/python tools/coverage_floors.py)

demo-ai: $(VENV)/.test ## ai:// endpoints, a gateway and people: sign in, approve, follow a task, verify (ARGS=--stay)
	@$(BIN)/onym models pull smollm2-135m-instruct
	@$(BIN)/python tools/demo_ai.py $(ARGS)

peer-vllm: $(VENV)/.test ## Onym against real vLLM on the processor (installs 3.4 GB once; ARGS=…)
	@$(BIN)/onym models pull smollm2-135m-instruct
	$(BIN)/python tests/e2e/vllm_job.py $(ARGS)

peer-a2a: $(VENV)/.test ## the A2A kit against Onym's agent (A2A_TCK=a checkout of a2aproject/a2a-tck)
	$(BIN)/python tests/e2e/a2a_tck_job.py "$(A2A_TCK)" $(ARGS)

lowest: ## the tests that need no servers, with the lowest versions of all dependencies, in .venv-lowest
	$(PYTHON) tools/lowest.py $(ARGS)

package: $(VENV)/.test ## wheel and sdist in dist/, checked; publishes nothing
	$(BIN)/python tools/release.py $(ARGS)

lint: $(VENV)/.test ## ruff, formatting, changelog fragments
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test ## mypy, strict
	$(BIN)/mypy

floors: $(VENV)/.test ## import-linter: who may import whom
	$(BIN)/lint-imports

docs: $(VENV)/.test ## build the documentation strictly, into site/ (the tests compare each page with what it shows)
	$(BIN)/zensical build --clean --strict
	$(BIN)/python docs/tools/rank_search.py

bench: $(VENV)/.test ## parse and client beside their peers, as ratios
	@$(UV) sync --quiet --locked --inexact --all-extras --group bench
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --no-audit --no-fund --silent --prefix bench
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python bench/run.py

fuzz: $(VENV)/.test ## coverage-guided fuzzing of the parsers (nightly; FUZZ_SECONDS=300)
	@$(UV) sync --quiet --locked --inexact --all-extras --group fuzz
	$(BIN)/python fuzz/fuzz_llm_uri.py -max_total_time=$(or $(FUZZ_SECONDS),300)
	$(BIN)/python fuzz/fuzz_ai.py -max_total_time=$(or $(FUZZ_SECONDS),300)

lock: ## renew uv.lock
	$(UV) lock

clean: ## remove everything that make made
	rm -rf .venv .venv-* .onym dist site .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
