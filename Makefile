# Commands for contributors and operators. `make` without a target lists them.

PYTHON ?= python3
BIN := .venv/bin

# Simulated runs are equal for equal seeds only if sets and dicts of strings are too.
export PYTHONHASHSEED := 0
# Bytecode caching halves the start time of test servers and pytest processes.
unexport PYTHONDONTWRITEBYTECODE

SOURCES := $(wildcard cli libs services spark speedups bench proto/generate.py docs/conf.py docs/generate.py tools tests)
PYTEST := $(BIN)/python -m pytest
# Tests with servers mostly wait, so there are more processes than cores. tests/scheduling.py distributes them.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -lt 4 ] && echo $$((n * 2)) || echo 8)
# Packages that only Spark, jobs and brokers with offloaded ledgers need: requirements-spark.txt has them.
OF_SPARK := pyspark py4j pyarrow fastavro fsspec s3fs aiobotocore aioitertools botocore jmespath python-dateutil six urllib3 wrapt
# pytest's exit code when no test is selected.
NONE := 5

# $(call run_tests,TIERS): runs tests that may share the machine, then measuring tests one at a time.
define run_tests
	@code=0; alone=0; \
	$(PYTEST) --cache-clear -n $(WORKERS) -m "($(1)) and not alone" $(ARGS) || code=$$?; \
	case $$code in 0|1|$(NONE)) ;; *) exit $$code;; esac; \
	$(PYTEST) -m "($(1)) and alone" $(ARGS) || alone=$$?; \
	case $$code-$$alone in 0-$(NONE)) exit 0;; $(NONE)-*) exit $$alone;; 0-*) exit $$alone;; *) exit $$code;; esac
endef

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark setup-images setup-cluster setup-tests docker-ready dist deploy-setup images up down run cluster test test-fast test-full test-nightly test-again test-over-bookies test-compiled speedups spark-proof lint fmt helm-lint proto docs docs-site lock bench bench-storage sim sim-record clients soak bank chaos mutations kubernetes check clean distclean

help: ## list the targets
	@if [ -t 1 ]; then on='\033[36m'; off='\033[0m'; else on=''; off=''; fi; \
	sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1:\2/p' $(MAKEFILE_LIST) | while IFS=: read -r name text; do \
		printf "  $$on%-12s$$off %s\n" "$$name" "$$text"; done

setup: ## create .venv with python3 (3.11 or newer) and what servers and commands need; instant when nothing changed
	@$(PYTHON) tools/setup.py

setup-spark: setup ## add PySpark and Parquet libraries to .venv, for spark/ and its tests
	@$(PYTHON) tools/setup.py build spark

setup-images: setup-spark ## add the packages that image builds and compose need
	@$(PYTHON) tools/setup.py deploy

setup-cluster: setup ## add etcd to .venv, for make cluster
	@$(PYTHON) tools/setup.py cluster

setup-tests: setup-spark ## add all packages for lint and tests, including those for charts, containers and clusters
	@$(PYTHON) tools/setup.py tests cluster spark deploy

deploy-setup: ## install the programs for deployment tests: docker, Prometheus and others from Debian, helm built with Go
	@$(PYTHON) -m tools.deploy_setup

images: setup-images ## build all container images and print their sizes: make images ARGS="bookie --save DIR", ARGS="--help"
	@$(BIN)/python -m tools.images $(ARGS)

up: docker-ready setup-images ## start the cluster of docker-compose.yml, building missing images: make up ARGS="--profile grafana"
	@$(BIN)/python -m tools.compose up $(ARGS)

docker-ready:
	@$(PYTHON) -m tools.docker_ready

down: setup ## stop the compose cluster; data is kept unless ARGS=--volumes
	@$(PYTHON) tools/setup.py deploy
	@$(BIN)/python -m tools.compose down $(ARGS)

run: setup ## start standalone on 6650 and 8080, data in ./data: make run ARGS="--data-dir DIR"
	@exec $(BIN)/magnetar standalone $(ARGS)

cluster: setup-cluster ## start a cluster of local processes, data in ./data/cluster: make cluster ARGS="--help"
	@exec $(BIN)/python -m tools.local_cluster $(ARGS)

test: setup-tests ## run the default tests, about 8 minutes on two cores: make test ARGS="-k cursor"
	@$(PYTEST) --cache-clear -n $(WORKERS) -m "not full and not nightly" $(ARGS)

test-fast: setup-tests ## run repository, unit and property tests only
	@$(PYTEST) -n $(WORKERS) -m "not full and not nightly" tests/repository tests/unit tests/property $(ARGS)

test-full: setup-tests ## run all tests required for a change; includes make test
	$(call run_tests,not nightly)

test-nightly: setup-tests ## run every test, with the most seeds, kills and cycles
	$(call run_tests,full or nightly or not full)

test-again: setup-tests ## rerun the tests that failed in the last run, one at a time
	@$(PYTEST) --last-failed --last-failed-no-failures none $(ARGS)

test-over-bookies: setup-tests ## run every client test against a broker with etcd and three bookies, 20 minutes
	@MAGNETAR_ALL_OVER_BOOKIES=1 $(PYTEST) -n $(WORKERS) -m "not full and not nightly" -k bookies tests/integration $(ARGS)

speedups: setup-tests ## compile the hot modules with mypyc and a C compiler, minutes: servers of .venv then run them
	@$(PYTHON) tools/setup.py build
	$(BIN)/python speedups/build.py $(ARGS)

test-compiled: speedups ## run unit and property tests, and clients against servers, on the compiled modules
	MAGNETAR_TEST_SPEEDUPS=1 $(PYTEST) -n $(WORKERS) -m "not full and not nightly" tests/unit/common tests/unit/ledger tests/unit/broker tests/property tests/integration $(ARGS)

lint: setup-tests ## check format, ruff, mypy --strict, import layers, generated code and docs
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python proto/generate.py --check
	$(BIN)/python docs/generate.py --check
	$(BIN)/python -m tools.dashboards --check
	$(BIN)/python -m tools.chart --check

helm-lint: deploy-setup setup-tests ## lint and render the Helm chart, and validate it with Kubernetes' schemas: tier 0 of its tests
	$(PYTEST) -q tests/repository/test_chart.py tests/deploy/test_chart_scripts.py $(wildcard tests/deploy/test_helm_*.py) $(ARGS)

fmt: setup-tests ## format, and apply ruff's fixes
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

proto: setup-tests ## generate the Python code of the .proto files
	$(BIN)/python proto/generate.py

docs: setup-tests ## generate reference docs: configuration.md, metrics.md, client-api.md, the references in admin.md, cli.md and kubernetes.md, dashboards, the schema of the chart
	$(BIN)/python docs/generate.py
	$(BIN)/python -m tools.dashboards
	$(BIN)/python -m tools.chart

dist: setup ## build the wheels of all distributions into dist/, and print how to install them
	@$(PYTHON) -m tools.dist $(ARGS)

docs-site: setup ## build the documentation as a site with search in ./site; fails on a broken link
	@$(PYTHON) tools/setup.py docs
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --jobs auto -c docs . site
	@echo "docs-site: site/index.html"

lock: setup ## resolve all packages and pin them with hashes in the requirements files
	$(BIN)/uv lock --upgrade
	$(BIN)/uv export --quiet --all-packages --no-default-groups --no-emit-workspace $(addprefix --no-emit-package ,$(OF_SPARK)) --format requirements-txt --no-header -o requirements.txt
	$(BIN)/uv export --quiet --only-group build --no-emit-workspace --format requirements-txt --no-header -o requirements-build.txt
	$(BIN)/uv export --quiet --only-group dev --no-emit-workspace --format requirements-txt --no-header -o requirements-tests.txt
	$(BIN)/uv export --quiet --only-group cluster --no-emit-workspace --format requirements-txt --no-header -o requirements-cluster.txt
	$(BIN)/uv export --quiet --only-group bench --no-emit-workspace --format requirements-txt --no-header -o requirements-bench.txt
	$(BIN)/uv export --quiet --only-group docs --no-emit-workspace --format requirements-txt --no-header -o requirements-docs.txt
	$(BIN)/uv export --quiet --only-group deploy --no-emit-workspace --format requirements-txt --no-header -o requirements-deploy.txt
	$(BIN)/uv export --quiet --only-group spark --no-emit-workspace --format requirements-txt --no-header -o requirements-spark.txt

bench: setup-tests ## benchmark against Apache Pulsar, 20 minutes: make bench ARGS="--quick", ARGS="--help"
	@$(PYTHON) tools/setup.py bench
	$(BIN)/python -m bench $(ARGS)

bench-storage: setup-tests ## benchmark the local log and bookies, 5 minutes: make bench-storage ARGS="--help"
	$(BIN)/python -m bench.storage $(ARGS)

spark-proof: setup-tests ## offload real text and query it with Spark, DuckDB and clients, 20 minutes: make spark-proof ARGS="--quick"
	@$(BIN)/python -m bench.spark_proof $(ARGS)

sim: setup-tests ## run the simulation with many seeds or one: make sim SEEDS=1000, make sim SEED=17
	MAGNETAR_SIM_SEEDS="$(SEEDS)" MAGNETAR_SIM_SEED="$(SEED)" $(PYTEST) -m seeds --timeout 0 tests $(ARGS)

sim-record: setup-tests ## run all simulations with many seeds, resumable, and record the results in docs/faults.md: make sim-record ARGS="--seeds 10000"
	@$(BIN)/python -m tests.simulation.record $(ARGS)

clients: setup-tests ## test client libraries of 5 languages, 4 minutes: make clients ANCHOR=1 for Apache Pulsar, ARGS="--help"
	@$(BIN)/python -m tests.clients $(if $(ANCHOR),--anchor) $(ARGS)

soak: setup-tests ## run 200 topics of all subscription types under churn, 10 minutes: make soak ARGS="--minutes 1 --seed 7"
	@$(BIN)/python -m tests.soak $(ARGS)

bank: setup-tests ## move balances in transactions of the Java client and check the history: make bank ARGS="--seconds 60", ANCHOR=1 for Apache Pulsar
	@$(BIN)/python -m tests.transactions $(if $(ANCHOR),--anchor) $(ARGS)

chaos: setup-tests ## kill, pause and partition the processes of a cluster, 10 minutes: make chaos ARGS="--minutes 1 --seed 7"
	@$(BIN)/python -m tests.chaos $(ARGS)

mutations: setup-tests ## plant bugs of storage and security one at a time that tests must detect, 8 minutes: make mutations ARGS="--only fence", ARGS=--check
	@$(BIN)/python -m tests.mutations $(ARGS)

kubernetes: deploy-setup setup-tests ## test the chart in the cluster of KUBECONFIG, or in kind: make kubernetes KUBERNETES_LOAD="kind load image-archive", RECORD=PAGE
	KUBERNETES_REQUIRED=1 KUBERNETES_LOAD="$(KUBERNETES_LOAD)" KUBERNETES_RECORD="$(RECORD)" $(PYTEST) tests/kubernetes $(ARGS)

check: lint test-fast ## run lint and the fast tests, before each commit

clean: ## remove caches; never touches ./data
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## clean, and remove .venv
	rm -rf .venv
