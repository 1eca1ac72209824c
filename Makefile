# One command each for what a visitor wants. Everything is made in .venv and build; `make clean` removes both.
# A fresh machine needs Python 3.11 to 3.14 and make, nothing else.

PYTHON ?=
ARGS ?=
SEEDS ?= 200
SEED ?=
STAMP := .venv/set-up

# A stamp says that .venv is complete, and where it was made: one that was moved, or whose Python is gone, is made anew.
ifneq ($(shell test -x .venv/bin/python && cat $(STAMP) 2>/dev/null),$(CURDIR))
$(shell rm -f $(STAMP))
endif

.PHONY: help setup demo test test-java test-kafka lint types bench reliability sim map lock clean

help: ## List the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## Make .venv with semel and all that its tests and its demo need, in the locked versions
	@:

$(STAMP): pyproject.toml locks/dev.txt tools/setup.sh tools/setup.py
	@PYTHON="$(PYTHON)" sh tools/setup.sh

demo: $(STAMP) ## A story with real clients: a lost ACK, a gap, a kill -9, and every record there once
	@.venv/bin/semel demo

test: $(STAMP) ## Run the tests; make test ARGS='tests/core -k wrap' runs some
	@.venv/bin/python -m pytest $(ARGS)

test-java: $(STAMP) ## Run the Java clients and Kafka's console tools against semel; needs Java 17 and mvn
	@SEMEL_TEST_JAVA=1 .venv/bin/python -m pytest tests/java $(ARGS)

test-kafka: $(STAMP) ## Run the tests of all real clients against Apache Kafka: are the tests right?
	@SEMEL_TEST_JAVA=1 .venv/bin/python -m bench.on_kafka .venv/bin/python -m pytest tests/clients tests/java $(ARGS)

lint: $(STAMP) ## Check style and formatting
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .

types: $(STAMP) ## Check the types, strictly
	@.venv/bin/mypy --strict src

bench: $(STAMP) ## Measure semel beside Apache Kafka and others, in one table
	@.venv/bin/python -m bench $(ARGS)

reliability: $(STAMP) ## Inject every fault there is, and write what came of it to docs/RELIABILITY.md
	@.venv/bin/python tools/reliability.py $(ARGS)

sim: $(STAMP) ## Run whole histories of the broker in a simulated world; make sim SEEDS=2000, or SEED=17 to replay one
	@PYTHONPATH=tests .venv/bin/python -m sim.run $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

map: $(STAMP) ## Write the pages anew that are read off the code: the file map and the reference
	@.venv/bin/python tools/file_map.py
	@.venv/bin/python tools/reference.py

lock: ## Write locks/dev.txt anew: the newest versions that pyproject.toml allows
	@PYTHON="$(PYTHON)" sh tools/lock.sh

clean: ## Remove all that was made here
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
