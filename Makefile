# One command each for what a visitor wants. Everything is made in .venv and build; `make clean` removes both.
# A fresh machine needs Python 3.11 to 3.14 and make, nothing else.

PYTHON ?=
ARGS ?=
SEEDS ?= 200
SEED ?=
MINUTES ?= 10
STAMP := .venv/set-up
# What drives a browser; only the tests of pages and the pictures need it, so it is not in the lock.
PLAYWRIGHT := playwright==1.65.2
BROWSER := build/browser
# What tests the alert rules: a program of Prometheus, which Go builds.
PROMETHEUS := v0.313.5
PROMTOOL := build/promtool/promtool
# The schema registry that tests run on semel.
APICURIO := 3.3.3
REGISTRY := build/apicurio
# Tests that are compiled, and an archive of the classes that Spark loads: the first run would make them otherwise.
READY := build/ready-for-tests

# Images of containers often set this; every process would then compile all that it imports anew.
export PYTHONDONTWRITEBYTECODE =
# Tests say what they expect by assertions, which this takes out; kafka-python does not work without its own.
export PYTHONOPTIMIZE =

# A stamp says that .venv is complete, and where it was made: one that was moved, or whose Python is gone, is made anew.
ifneq ($(shell test -x .venv/bin/python && cat $(STAMP) 2>/dev/null),$(CURDIR))
$(shell rm -f $(STAMP))
endif
# So is one of another version than the Python that somebody names.
version = $(shell '$(1)' -c 'import sys; print(*sys.version_info[:2])' 2> /dev/null)
ifneq ($(and $(PYTHON),$(call version,$(PYTHON))),$(and $(PYTHON),$(call version,.venv/bin/python)))
$(shell rm -f $(STAMP))
endif

.PHONY: help setup demo example test verify strangers saboteurs mutants test-java test-go test-alarms test-registry test-kafka test-browser pictures console-cost verdicts lint types bench reliability sim failover damage damaged-stores takeovers cut-off queue sink-kills crash soak map messages lock clean

help: ## List the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) $(READY) ## Make .venv with semel and all that its tests and its demo need, in the locked versions
	@:

$(STAMP): pyproject.toml locks/dev.txt tools/setup.sh tools/setup.py
	@PYTHON="$(PYTHON)" sh tools/setup.sh

$(READY): $(STAMP)
	@echo "semel: compiling the tests, and Spark's classes for them"
	-@.venv/bin/python -m pytest --collect-only -qq > /dev/null
	@PYTHONPATH=tests .venv/bin/python -m fast_spark
	@mkdir -p build && touch $(READY)

demo: $(STAMP) ## The main job: payments through a bad network, three ways, then Spark to the last row, and a report
	@.venv/bin/semel demo

example: $(STAMP) ## A payment service under load, each of its processes killed again and again; then its books are checked
	@PYTHONPATH=examples .venv/bin/python -m payments.trial $(ARGS)

test: $(STAMP) $(READY) ## Run the tests, side by side; make test ARGS='tests/log/core -k wrap' runs some
	@.venv/bin/python -m pytest $(if $(findstring ::,$(ARGS)),,-n auto) $(if $(ARGS),$(ARGS),--durations=10 --durations-min=1)

verify: $(STAMP) ## Everything that is too slow for make test: planted bugs, histories, crashes, soak, Java, Apache Kafka
	@.venv/bin/python tools/verify.py $(ARGS)

test-java: $(STAMP) ## Run the Java clients and Kafka's console tools against semel; needs Java 17 and mvn
	@SEMEL_TEST_JAVA=1 .venv/bin/python -m pytest tests/java $(ARGS)

test-go: $(STAMP) ## Log three clients of Go in to semel, each way, right and wrong; needs Go 1.26
	@SEMEL_TEST_GO=1 .venv/bin/python -m pytest tests/go -rs $(ARGS)

test-alarms: $(STAMP) $(PROMTOOL) ## Provoke each alarm of deploy/prometheus, and a quiet day; needs Go 1.26
	@.venv/bin/python -m pytest tests/deploy -rs $(ARGS)

$(PROMTOOL):
	@echo "semel: building promtool of Prometheus $(PROMETHEUS)"
	@source=$$(go mod download -json github.com/prometheus/prometheus@$(PROMETHEUS) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p') && \
		GOWORK=off go build -C "$$source" -o "$(CURDIR)/$(PROMTOOL)" ./cmd/promtool

test-registry: $(STAMP) $(REGISTRY) ## Read and write values of a schema registry: Apicurio, with its schemas in a topic of semel
	@.venv/bin/python -m pytest tests/spark/registry $(ARGS)

$(REGISTRY):
	@echo "semel: fetching Apicurio $(APICURIO)"
	@rm -rf $@.part && mkdir -p $@.part && cd $@.part && curl -fsSL https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/$(APICURIO)/apicurio-registry-app-$(APICURIO)-all.tar.gz | tar xz
	@mv $@.part $@

test-kafka: $(STAMP) ## Run the tests of real clients, publisher, inbox and pipeline against Apache Kafka: are they right?
	@SEMEL_TEST_JAVA=1 .venv/bin/python -m bench.on_kafka .venv/bin/python -m pytest tests/clients tests/java \
		tests/publish tests/outbox tests/inbox tests/ui/console/test_any_cluster.py tests/spark/source tests/spark/lanes tests/spark/test_whole_pipeline.py $(ARGS)

test-browser: $(STAMP) $(BROWSER) ## Walk through the console in a Chromium: each page, axe, both themes, and on Apache Kafka
	@PYTHONPATH=$(BROWSER) .venv/bin/python -m pytest -m 'slow or not slow' tests/ui/console/test_in_a_browser.py \
		tests/ui/console/test_trial_in_a_browser.py tests/ui/console/test_steady_page.py tests/ui/console/test_walks.py \
		tests/ui/console/test_walk_of_changes.py $(ARGS)
	@PYTHONPATH=$(BROWSER) .venv/bin/python -m bench.on_kafka .venv/bin/python -m pytest -m 'slow or not slow' \
		tests/ui/console/test_walks.py tests/ui/console/test_walk_of_changes.py $(ARGS)

pictures: $(STAMP) $(BROWSER) ## Take the pictures of the console in docs/pictures anew; needs a Chromium
	@PYTHONPATH=tests:$(BROWSER) .venv/bin/python tools/console_pictures.py

console-cost: $(STAMP) $(BROWSER) ## Measure what a console costs the broker and holds, and how soon it tells; some 40 minutes
	@PYTHONPATH=.:tests:$(BROWSER) .venv/bin/python tools/console_cost.py $(ARGS)

$(BROWSER): $(STAMP)
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --target $(BROWSER) $(PLAYWRIGHT)

verdicts: $(STAMP) ## Ask semel and Apache Kafka the same, by five principals under seven sets of access rules, call by call
	@PYTHONPATH=tests .venv/bin/python -m verdicts.run

strangers: $(STAMP) ## Run the tests on the machines that strangers have, each in a fresh clone; make strangers ARGS='--only WORDS'
	@.venv/bin/python tools/strangers.py $(ARGS)

saboteurs: $(STAMP) ## Plant each known bug in semel: a test must fail over it; make saboteurs ARGS='--only WORDS'
	@PYTHONPATH=tests .venv/bin/python -m saboteurs.run $(ARGS)

mutants: $(STAMP) ## Break each promise of semel: a test must fail over it; make mutants ARGS='--only WORDS'
	@PYTHONPATH=tests .venv/bin/python -m saboteurs.run --mutants $(ARGS)

lint: $(STAMP) ## Check style and formatting
	@.venv/bin/ruff check --no-cache .
	@.venv/bin/ruff format --check .

types: $(STAMP) ## Check the types, strictly
	@.venv/bin/mypy --strict src examples

bench: $(STAMP) ## Measure semel beside Apache Kafka and others; ARGS='--area spark --write' writes docs/BENCHMARKS.md
	@.venv/bin/python -m bench $(ARGS)

reliability: $(STAMP) ## Inject every fault there is, and write what came of it to docs/RELIABILITY.md
	@.venv/bin/python tools/reliability.py $(ARGS)

sim: $(STAMP) ## Run whole histories of the broker in a simulated world; make sim SEEDS=2000, or SEED=17 to replay one
	@PYTHONPATH=tests .venv/bin/python -m sim.run $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

failover: $(STAMP) ## Go through every state of the replicated journal, in worlds too large for make test
	@PYTHONPATH=tests .venv/bin/python -m failover.run

damaged-stores: $(STAMP) ## Damage each object of a store in each way, and 2,000 at random: is everything there, or does a line say what is lost?
	@PYTHONPATH=tests .venv/bin/python -m damaged_stores.run $(if $(SEED),--seed $(SEED)) $(ARGS)
damage: $(STAMP) ## Damage each file of a data directory in each way, and 2,000 at random: is a start whole, or does it stop with a line?
	@PYTHONPATH=tests .venv/bin/python -m damage.run $(if $(SEED),--seed $(SEED)) $(ARGS)

takeovers: $(STAMP) ## Copy 100,000 records in transactions over 20 takeovers on each real store; make takeovers ARGS='--store postgres'
	@PYTHONPATH=tests .venv/bin/python -m takeovers.run $(ARGS)

cut-off: $(STAMP) ## Cut brokers off from real stores, and have them stand still, with real clients; ARGS='--store postgres'
	@PYTHONPATH=tests .venv/bin/python -m takeovers.cut_off $(ARGS)

queue: $(STAMP) ## Work off 20,000 jobs by 8 consumers that are killed together with their broker; make queue ARGS='--messages 1000'
	@PYTHONPATH=tests .venv/bin/python -m queue_trial.run $(ARGS)

sink-kills: $(STAMP) ## Kill the driver of a sink into MariaDB around its commits; the database's own client counts; ARGS='--kills 40'
	@PYTHONPATH=tests .venv/bin/python -m sink_kills.run $(ARGS)

soak: $(STAMP) ## Run two Spark queries for long, with faults throughout, and audit it; make soak MINUTES=10 SEED=1
	@PYTHONPATH=tests .venv/bin/python -m soak.run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

crash: $(STAMP) ## Kill each piece of the application kit at every point where it does IO; prints what came of it
	@PYTHONPATH=tests .venv/bin/python -m crash_kit.run $(ARGS)

map: $(STAMP) ## Write the pages anew that are read off the code: the file map and the reference
	@.venv/bin/python tools/file_map.py
	@.venv/bin/python tools/reference.py
	@.venv/bin/python tools/python_reference.py

messages: $(STAMP) ## Write the classes of Kafka's messages again; make messages JAR=kafka-clients-4.3.1.jar takes its definitions
	@.venv/bin/python tools/kafka_messages.py $(JAR)

lock: ## Add to locks/dev.txt what pyproject.toml names; make lock ARGS=--upgrade takes the newest version of everything
	@PYTHON="$(PYTHON)" sh tools/lock.sh $(ARGS)

clean: ## Remove all that was made here
	rm -rf .venv build dist demo-report.html .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
