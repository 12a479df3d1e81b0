# Every target makes the environment that it needs. A fresh clone needs Python 3.11 or later (with venv),
# make and gcc. PYTHON= names the interpreter, VENV= the directory, PYTEST_ARGS= adds to every pytest call, TORCH= is the
# PyTorch that the tests use ("make test TORCH=torch" for the newest one; TORCH= for none).

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
# The CPU build of the oldest supported version: the default build brings gigabytes of CUDA libraries. Not every
# registry has it, nor for every Python: without it the tests that need PyTorch are skipped.
TORCH ?= torch==2.13.0+cpu
# Processes that run tests, each whole files of them; PYTEST_ARGS="-n 0" for one, as a debugger wants it. One that
# crashes ends the run: pytest-xdist waits for ever for the files that a crashed process had left.
WORKERS ?= $(shell $(PYTHON) scripts/test_processes.py)
BIN := $(VENV)/bin
PROTO_BIN := .venv-proto/bin
# Registries are asked again while they do not answer.
PIP := -m pip --disable-pip-version-check --quiet --retries 10
# Exact versions, also of what builds the package (pip reads the second name from 25.3 on, the first before).
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
# Reads local files only, and needs no network. With --quiet MkDocs would not count warnings as errors.
BUILD_SITE = NO_MKDOCS_2_WARNING=1 timeout 300 $(BIN)/python -m mkdocs build --strict
NPM := npm --loglevel error --fetch-retries 8

# One stamp an environment: made again when what it was made from changes.
SERVER := $(VENV)/.installed-server
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench
PACKAGE := pyproject.toml constraints.txt hatch_build.py kcache_grpc/runtime/_fastcall.c
PROTO := .venv-proto/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(SERVER) ## real server, three clients, three graphs, one crash: everything compiled once
	$(BIN)/python examples/demo.py

.PHONY: test
test: $(DEV) ## the tests that run on every change
# Compile workers have a lower priority: among tests of nice 0 on all cores, what a server test waits for would starve.
# Without bytecode each process of a test compiles the sources of both packages, which takes two seconds.
	env -u PYTHONDONTWRITEBYTECODE nice -n 19 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(PYTEST_ARGS)

.PHONY: test-long
test-long: $(DEV) $(PROTO) ## the tests that take long or install packages
	$(BIN)/python -m pytest -m long --timeout 3600 -o faulthandler_timeout=3700 $(PYTEST_ARGS)

.PHONY: check
check: $(DEV) $(PROTO) ## format, lint, types, import contracts, generated code, documentation
# Types take as long as all the rest.
	$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target check-types check-sources

.PHONY: check-types
check-types: $(DEV) ## of make check: types
	$(BIN)/pyright

.PHONY: check-sources
check-sources: $(DEV) $(PROTO) ## of make check: all but types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports
	$(PROTO_BIN)/python scripts/generate_protos.py check
	$(BIN)/python -m scripts.generate_torch_operations check
	$(BIN)/python -m scripts.generate_torch_decompositions check
	$(BUILD_SITE)

.PHONY: docs
docs: $(DEV) ## the documentation as a site in the directory site; a broken link is an error
	$(BUILD_SITE)

.PHONY: format
format: $(DEV) ## format, and fix what lint can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: bench
bench: $(BENCH) ## latencies side by side with bare gRPC: JSON and a picture in benchmarks/out
	$(BIN)/python -m benchmarks

.PHONY: bench-kernels
bench-kernels: $(DEV) $(BENCH) ## kernels compared with PyTorch, JAX, NumPy and ONNX Runtime: JSON and pictures in benchmarks/out
	$(BIN)/python -m benchmarks.kernels --json benchmarks/out/kernels.json --pictures benchmarks/out $(BENCH_ARGS)

.PHONY: bench-models
bench-models: $(DEV) $(BENCH) ## whole models compared with Inductor, ONNX Runtime, OpenVINO, PyTorch and JAX: JSON and charts in benchmarks/out
	$(BIN)/python -m benchmarks.models --json benchmarks/out/models.json --pictures benchmarks/out $(BENCH_ARGS)

.PHONY: bench-jax
bench-jax: $(DEV) $(BENCH) ## programs of JAX compared with jax.jit: JSON in benchmarks/out
	$(BIN)/python -m benchmarks.jax_programs --json benchmarks/out/jax-programs.json $(BENCH_ARGS)

.PHONY: bench-gpu
bench-gpu: $(DEV) $(BENCH) ## kernels on this machine's GPU compared with PyTorch eager, Inductor and cuBLAS: JSON in benchmarks/out
	$(BIN)/python -m benchmarks.gpu --json benchmarks/out/gpu.json

.PHONY: sanitize-gpu
sanitize-gpu: $(DEV) ## the GPU tests under compute-sanitizer, on a machine with a GPU
	$(BIN)/python -m tests.runtime.gpu.sanitized

.PHONY: proto
proto: $(PROTO) ## generate kcache_grpc/_proto from protos
	$(PROTO_BIN)/python scripts/generate_protos.py write

.PHONY: release-protos
release-protos: $(PROTO) ## keep today's protos as what release VERSION=x.y.z promised
	$(PROTO_BIN)/python scripts/generate_protos.py release $(VERSION)

.PHONY: constraints
constraints: $(PROTO) ## resolve all dependencies again: constraints.txt
	PATH="$(abspath $(PROTO_BIN)):$$PATH" $(PROTO_BIN)/python scripts/update_constraints.py

.PHONY: examples
examples: $(DEV) ## make the graphs and expected results in examples again
	$(BIN)/python examples/make_graphs.py

.PHONY: wheel
wheel: ## build the wheel into dist
	$(PYTHON) $(PIP) wheel --no-deps --wheel-dir dist .

.PHONY: clean
clean: ## remove environments and everything built
	rm -rf .venv .venv-proto tests/system/interop/node/node_modules dist build site .demo benchmarks/out .pytest_cache .ruff_cache .hypothesis .import_linter_cache kcache_grpc/runtime/_fastcall*.so

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "kcache is built and tested with Python 3.11 or later, and $(PYTHON) is %d.%d: make PYTHON=python3.11 (or later) ..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

$(SERVER): $(PACKAGE) | $(BIN)/python
	$(PINNED) $(BIN)/python $(PIP) install -e '.[server]'
	@touch $@

# PyTorch is constrained without the CUDA libraries: its default build requires exact versions of its own.
$(DEV): $(PACKAGE) tests/system/interop/node/package-lock.json | $(BIN)/python
	$(PINNED) $(BIN)/python $(PIP) install -e '.[server,dev,docs,jax]'
	grep -v -E '^(nvidia|cuda)-' constraints.txt >$(VENV)/torch-constraints.txt
	[ -z '$(TORCH)' ] || $(BIN)/python $(PIP) install -c $(VENV)/torch-constraints.txt '$(TORCH)' || \
	  echo 'there is no $(TORCH) for this Python: the tests that need PyTorch are skipped (TORCH= names another)'
	PATH="$(abspath $(BIN)):$$PATH" $(NPM) ci --ignore-scripts --prefix tests/system/interop/node
	@touch $@ $(SERVER)

$(BENCH): $(PACKAGE) | $(BIN)/python
	$(PINNED) $(BIN)/python $(PIP) install -e '.[server,bench]'
	@touch $@ $(SERVER)

$(PROTO): scripts/proto-requirements.txt
	$(PYTHON) -m venv .venv-proto
	$(PROTO_BIN)/python $(PIP) install -r scripts/proto-requirements.txt
	@touch $@
