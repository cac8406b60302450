# `make` alone lists the targets. All of them work on a machine with Python 3.11+, gcc and make.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
JOBS ?= 2
ROW ?= core
SEEDS ?= 200
DAYS ?= 30
BUILT = $$(find . -maxdepth 3 -name '*.so' -not -path './.*' -not -path './build/*')
TESTED := build $(VENV)/test-needs.stamp
LOADGEN := $(VENV)/bin/martlet-loadgen
# The C flags of each build mode. -g1 keeps profilers useful and costs no speed.
CFLAGS_release := -O3 -g1 -fno-strict-aliasing
CFLAGS_debug := -O0 -g -UNDEBUG -DMARTLET_DEBUG=1
CFLAGS_asan := -O1 -g -UNDEBUG -DMARTLET_DEBUG=1 -fsanitize=address -fno-omit-frame-pointer
CFLAGS_coverage := -O0 -g -DCYTHON_TRACE=1 -DCYTHON_TRACE_NOGIL=1
MODE ?= release
# The sanitizer's runtime must be loaded before Python's own allocator is used.
ASAN_ENV = LD_PRELOAD=$$(gcc -print-file-name=libasan.so) PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:log_path=$(CURDIR)/build/asan-report

.DEFAULT_GOAL := help
.PHONY: help docs analytics build debug asan coverage run test quick crash damage lint ledger bench interop sim fuzz loadgen prof clean image spark-cluster

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort | awk -F'\t' '{printf "  make %-13s %s\n", $$1, $$2}'

# What pyproject.toml asks for, one word each: to build and run, and to test.
NEEDS = $(PYTHON) -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); print(*(need.replace(" ", "") for need in $(1)))'
RUN_NEEDS = $$($(call NEEDS,p["build-system"]["requires"] + p["project"]["dependencies"]))
TEST_NEEDS = $$($(call NEEDS,p["project"]["optional-dependencies"]["test"]))
ANALYTICS_NEEDS = $$($(call NEEDS,[n for e in "analytics spark".split() for n in p["project"]["optional-dependencies"][e] if "martlet" not in n]))
PIP := $(PY) -m pip install -q --disable-pip-version-check

$(VENV)/needs.stamp: pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "installing dependencies into $(VENV)"
	@$(PIP) $(RUN_NEEDS)
	@touch $@

$(VENV)/test-needs.stamp: pyproject.toml | $(VENV)/needs.stamp
	@echo "installing what the tests need into $(VENV)"
	@$(PIP) $(TEST_NEEDS)
	@touch $@

build: $(VENV)/needs.stamp  ## build everything in place; the command is .venv/bin/martlet
	@test "$$(cat $(VENV)/mode 2>/dev/null)" = "$(MODE)" || rm -rf build/temp.* build/lib.* $(BUILT)
	@CFLAGS="$(CFLAGS_$(MODE))" $(PY) setup.py -q build_ext --inplace -j $(JOBS)
	@echo "$(MODE)" > $(VENV)/mode
	@test $(VENV)/bin/martlet -nt pyproject.toml || (CFLAGS="$(CFLAGS_$(MODE))" $(PIP) --no-deps --no-build-isolation --config-settings editable_mode=compat -e . && touch $(VENV)/bin/martlet)

$(LOADGEN): $(wildcard bench/loadgen/*.c bench/loadgen/*.h) | $(VENV)/needs.stamp
	@gcc -O2 -g1 -std=gnu11 -Wall -Wextra -o $@ bench/loadgen/*.c

loadgen: $(LOADGEN)  ## compile the load generator: .venv/bin/martlet-loadgen --help

image: $(TESTED)  ## the steps of the Dockerfile without a container engine, compiling everything anew
	MARTLET_IMAGE=1 $(PY) -m pytest -q tests/deploy

debug: $(VENV)/test-needs.stamp  ## build with assertions and without optimisation
	@$(MAKE) --no-print-directory build MODE=debug

asan: $(VENV)/test-needs.stamp  ## build with the address sanitizer and run the unit and property tests on it
	@$(MAKE) --no-print-directory build MODE=asan
	@rm -f build/asan-report.*
	$(ASAN_ENV) $(PY) -m pytest -n $(JOBS) -q tests/unit tests/property || { head -n 60 build/asan-report.*; exit 1; }

coverage: $(VENV)/test-needs.stamp  ## build with line tracing for coverage of .pyx files
	@$(MAKE) --no-print-directory build MODE=coverage

run: build  ## serve on 4222, monitoring on 8222, JetStream under ./data
	$(VENV)/bin/martlet -p 4222 -m 8222 -js -sd ./data

test: $(TESTED) loadgen  ## the whole suite
	$(PY) -m pytest -n $(JOBS) -q

quick: $(TESTED)  ## unit, tidy and property tests: under a minute
	$(PY) -m pytest -n $(JOBS) -q -m 'not slow' tests/unit tests/tidy tests/property

crash: $(TESTED)  ## power loss at every sync (SEEDS=200 workloads), every damaged bit, an error at every call; CI does a part
	MARTLET_CRASH_SEEDS=$(SEEDS) MARTLET_DAMAGE_STEP=1 MARTLET_ERROR_STEP=1 $(PY) -m pytest -n $(JOBS) -q tests/crash/test_power_loss.py tests/crash/test_damage.py tests/crash/test_disk_errors.py

damage: $(TESTED)  ## one bit in DAYS=30 of all variants' files damaged, the next ones tomorrow (DAYS=1: all, DAY=n: those of day n)
	MARTLET_DAMAGE_STEP=$(DAYS) $(if $(DAY),MARTLET_DAMAGE_DAY=$(DAY)) $(PY) -m pytest -n $(JOBS) -q tests/crash/test_damage.py

lint: $(TESTED)  ## ruff and mypy
	@$(PIP) mypy ruff types-PyYAML
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

bench: $(TESTED) loadgen  ## measure ROW=core against nats-server (ARGS=--keep, --list, --help ...)
	@$(PY) -m bench $(ROW) $(ARGS)

prof: $(TESTED) loadgen  ## profile Martlet during ROW=... with perf, else py-spy (ARGS="--only peer")
	@$(PY) -m bench $(ROW) --profile $(ARGS)

ledger:  ## write docs/features.md anew from the tests' markers
	$(PYTHON) -m tests.ledger

analytics: build  ## what reads streams, into .venv: pyarrow, obstore and Spark (450 MB)
	@$(PIP) $(ANALYTICS_NEEDS)

spark-cluster: $(TESTED)  ## the data source on a standalone Spark cluster with two foreign workers
	MARTLET_SPARK_CLUSTER=1 $(PY) -m pytest -q tests/analytics/test_cluster.py

interop: $(TESTED)  ## the clients of other languages and the nats command, where their tools are installed
	@$(PY) -m tests.interop.programs
	MARTLET_INTEROP=1 $(PY) -m pytest -q tests/interop

FUZZ := $(CURDIR)/build/fuzz
SECONDS ?= 60
CLANG_RUNTIME = $$(clang -print-runtime-dir)
FUZZER = $(CLANG_RUNTIME)/libclang_rt.fuzzer_no_main-x86_64.a
# The fuzzer's runtime goes first: the sanitizer's own has empty stand-ins for its coverage hooks.
FUZZ_ENV = PYTHONPATH=$$(echo $(FUZZ)/lib.*):$(CURDIR) PYTHONSAFEPATH=1 PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 \
	LD_PRELOAD="$(FUZZ)/libfuzzer.so $(CLANG_RUNTIME)/libclang_rt.asan-x86_64.so"

sim: SEEDS := 2000
sim: $(TESTED)  ## simulate consumers with SEEDS=2000 plays: none may go quiet with messages left
	MARTLET_SIM_SEEDS=$(SEEDS) $(PY) -m pytest -n $(JOBS) -q tests/sim

fuzz: $(TESTED)  ## fuzz the client protocol for SECONDS=60 with clang's libFuzzer and address sanitizer
	@command -v clang > /dev/null && test -e $(FUZZER) || { echo "make fuzz needs clang and its runtimes (Debian: apt-get install clang libclang-rt-dev)"; exit 1; }
	@mkdir -p $(FUZZ)/corpus
	@clang -shared -o $(FUZZ)/libfuzzer.so -Wl,--whole-archive $(FUZZER) -Wl,--no-whole-archive -lstdc++ -lpthread -lm -ldl
	@CC=clang LDSHARED="clang -shared" CFLAGS="-O1 -g -UNDEBUG -DMARTLET_DEBUG=1 -fsanitize=address,fuzzer-no-link -fno-omit-frame-pointer -w" \
		$(PY) setup.py -q build --build-base $(FUZZ) -j $(JOBS)
	$(FUZZ_ENV) $(PY) -m tests.fuzz $(FUZZ)/libfuzzer.so -max_total_time=$(SECONDS) -artifact_prefix=$(FUZZ)/ -print_final_stats=1 -dict=tests/fuzz/protocol.dict $(FUZZ)/corpus tests/fuzz/corpus

docs: $(TESTED)  ## write docs/configuration.md anew from the tables of options
	$(PY) -m tests.configuration_page
	$(PY) -m tests.error_table

clean:  ## remove what the build made, but not the environment
	rm -rf build dist *.egg-info $(BUILT) $$(find config pyspark_jetstream raft server storage -name '*.c')
