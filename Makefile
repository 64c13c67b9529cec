# make demo          see it work: installs the server alone, then about 20 s, ends by itself
# make test          set up what the tests need and run them (docs/testing.md)
# make test-unit     the part of it that needs no server: about a minute
# make test-others   the rest of it: test-long, test-servers and test-sessions (of Spark), one after the other
# make test-slow     the full counts, most of a day; REPEATS=4: every test, but a fourth of the seeds
# make test-spark    the tests of Spark with another version of it: PYSPARK=4.2.1
# make fuzz          bytes that nobody means well by, into everything that takes some: MINUTES=10 (tests/fuzz/README.md)
# make docs          the documents as a site, in site/; warnings are errors
# make lint types    what CI also checks;  make format applies the formatting
# make bench         list the benchmarks;  make bench BENCH="fanout --json" runs one
#
# Variables: PYTHON=python3.12 chooses the interpreter, JOBS=4 the number of test workers, HEAVY_JOBS=3 of those for
# slow tests and Spark, UNIT_JOBS=2 of those for unit tests, ARGS="-k dump -x" is handed to pytest, or to the fuzzer.

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/up-to-date
# What a demo needs is the server alone: a tenth of the tools, unless these are there.
BASE  := $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)/server-only)
JOBS  ?= 3
HEAVY_JOBS ?= 2
# Unit tests wait for nothing: a worker more than there are processors would only look for the tests once more.
UNIT_JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
ARGS  ?=
UNIT  := $(addprefix tests/,protocol storage binlog_server pipeline benchmarks)
SPARK := $(addprefix tests/,pipeline benchmarks)
BENCH ?=
MINUTES ?= 10
REPEATS ?= 1
PYSPARK ?= 4.2.1
# ARGS may choose tests of one kind alone; pytest ends with 5 if it has chosen none.
NONE_CHOSEN = { [ $$? = 5 ] && [ -n "$(ARGS)" ]; }

# Tests start hundreds of processes: each would compile the whole project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv demo setup test test-unit test-others test-long test-servers test-sessions test-slow test-spark compiled-tests fuzz lint types docs format bench clean

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

venv: $(STAMP)
	@:

# Editable: only a change of the project's own description, or of what is compiled, asks for pip again.
$(STAMP): EXTRAS := dev
$(STAMP) $(VENV)/server-only: pyproject.toml .ci/venv hatch_build.py protocol/binlog_protocol/speedups.h protocol/binlog_protocol/events/_group_runs.c protocol/binlog_protocol/row_columns/_speedups.c protocol/binlog_protocol/wire/_speedups.c storage/binlog_storage/ibb/_speedups.c
	@PYTHON="$(PYTHON)" .ci/venv $(VENV) '$(EXTRAS)'
	@touch $@

demo: $(BASE)
	@$(BIN)/binlog-server demo

setup:
	@tests/kit/setup.sh

test: test-unit test-others

# No server, no other process (tests/kit/unit.py): in their folders alone, as the others take long to be looked through.
test-unit: $(STAMP)
	@$(BIN)/python -m pytest -q -m unit -n $(UNIT_JOBS) --dist worksteal $(UNIT) $(ARGS) || $(NONE_CHOSEN)

test-others: test-long test-servers test-sessions

OTHERS := -m "not unit and not slow and not spark" --dist worksteal
# As the unit tests, in their folders; and no more workers than processors: they wait for little.
test-long: $(STAMP) setup
	@$(BIN)/python -m pytest $(OTHERS) -n $(UNIT_JOBS) $(UNIT) $(ARGS) || $(NONE_CHOSEN)

test-servers: $(STAMP) setup
	@$(BIN)/python -m pytest $(OTHERS) -n $(JOBS) $(addprefix --ignore=,$(UNIT)) $(ARGS) || $(NONE_CHOSEN)

# Spark by itself: its driver talks to Python by select(), which fails in a process that has had a thousand files open.
test-sessions: $(STAMP) setup
	@$(BIN)/python -m pytest -m "spark and not slow" -n $(HEAVY_JOBS) --dist worksteal $(SPARK) $(ARGS) || $(NONE_CHOSEN)

test-slow: $(STAMP)
	@tests/kit/setup.sh slow
	@$(BIN)/pip --disable-pip-version-check install --quiet -e '.[slow]'
	@BINLOG_TEST_MATRIX=full BINLOG_TEST_REPEATS=$(REPEATS) $(BIN)/python -m pytest -m "slow or each_version or any_version or by_turns" -n $(HEAVY_JOBS) --dist worksteal --timeout 3600 $(ARGS)

# In an environment of its own: the oldest version that is supported, unless another one is named.
test-spark: setup
	@PYTHON="$(PYTHON)" .ci/venv .venv-spark-$(PYSPARK)
	@.venv-spark-$(PYSPARK)/bin/pip --disable-pip-version-check install --quiet "pyspark[connect]==$(PYSPARK)"
	@.venv-spark-$(PYSPARK)/bin/python -m pytest -m "spark and not slow" tests/pipeline $(ARGS)

# As pytest compiles them, with asserts that tell more: its workers, who start together, would each do it.
compiled-tests: $(STAMP)
	@$(BIN)/python -m pytest -q --collect-only >/dev/null

fuzz: $(STAMP)
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)
	@$(BIN)/python -m benchmarks $(BENCH)

clean:
	rm -rf $(VENV) .venv-spark-* build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
