# `make` or `make help` says what each target does. Everything but gpu-test and the benchmarks runs in an
# environment of its own, .venv, which is made when first needed. Those, and demo on a machine with a GPU, take the
# `python3` that has PyTorch for it (or PYTHON=...), install nothing and run from the source tree.

PYTHON ?= python3
BASE ?= main
GPU_TESTS ?= $(wildcard tests/gpu tests/runtime tests/cli)
DEFAULT_TIER := not gpu and not slow and not units and not soak and not types and not compilers

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Releases of NVRTC that programs meet in PyTorch's environments, beside the one that the package installs.
RELEASES := 12.8.93 13.0.88

# pytest writes its bytecode, too; without it, collecting the tests takes three times as long.
unexport PYTHONDONTWRITEBYTECODE
# A process of its own on each core: more threads in one would wait for one another.
quick test compile compilers all-tests soak golden: export OPENBLAS_NUM_THREADS := 1
quick test compile compilers all-tests soak golden: export OMP_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo quick test speed gpu-test bench gemm-bench soak gpu-soak lint format types size weight compile compilers all-tests check golden inventory pictures docs diff clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## make .venv and install the package and its tools there

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; choose one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: ## run matmul, softmax and attention, check them, compile them for Hopper, run them on one if it is there
	@if $(PYTHON) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then \
		PYTHONPATH=. $(PYTHON) -m pykittens.cli demo; \
	else \
		$(MAKE) --no-print-directory venv && $(BIN)/pykittens demo; \
	fi

quick: venv ## two cases of each test that neither compiles nor starts a program, in less than a minute
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(DEFAULT_TIER)" --quick

test: venv ## the tests that need no GPU, with a sample of what `compile` does
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(DEFAULT_TIER)"

speed: venv ## how fast the emulator and the compiler are, alone on the machine
	$(BIN)/python -m pytest -m slow $(shell grep -rl --include='*.py' 'mark\.slow' tests)

gpu-test: ## the tests that need a GPU, with the python3 that has PyTorch
	PYTHONPATH=. $(PYTHON) -m pytest -m gpu $(GPU_TESTS)

bench: ## measure the kernels beside the vendor's libraries, with the python3 that has PyTorch
	PYTHONPATH=. $(PYTHON) benchmarks/run.py

gemm-bench: ## measure products of many shapes beside cuBLAS, with the python3 that has PyTorch
	PYTHONPATH=. $(PYTHON) benchmarks/gemm.py

soak: venv ## random programs, products, calls, threads and kills, and 1000 schedules of every kernel; takes an hour
	PYTHONPATH=. $(BIN)/python -m tools.soak
	PYTHONPATH=. $(BIN)/python -m tools.soak.schedules
	$(BIN)/python -m pytest -n 2 -m soak

gpu-soak: ## the same search on a GPU, with the python3 that has PyTorch and Hypothesis; a maintainer runs it before a release
	PYTHONPATH=. $(PYTHON) -m tools.soak --gpu

lint: venv ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: venv ## ruff: repair what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: venv ## mypy and Pyright: the package, the examples, right and wrong kernels of a user
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/python -m pytest -m types tests/typing

size: venv ## the five largest files; more than 500 lines in one is an error
	@$(BIN)/python tools/size.py

weight: venv ## lines of code by folder, beside those of a commit: make weight BASE=main
	@$(BIN)/python tools/weight.py $(BASE)

compile: venv ## all of what `test` samples: every case compiled for each target that differs, proofs and mutants
	$(BIN)/python -m pytest -n 2 --dist worksteal -m units

OTHER_RELEASES := $(RELEASES:%=$(VENV)/compilers/%/.installed)

compilers: $(OTHER_RELEASES) ## one of six programs with an older release of NVRTC, installed in .venv/compilers
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "compilers and not soak" tests/targets

all-tests: $(OTHER_RELEASES) ## what test, compile and compilers run, at once: the tests are collected a single time
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not gpu and not slow and not soak and not types"

$(VENV)/compilers/%/.installed: $(INSTALLED)
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) nvidia-cuda-nvrtc$(if $(filter 12.%,$*),-cu12)==$*
	@touch $@

check: lint types test compile size ## all of the above, as before a commit

golden: venv ## write the golden files anew; read the diff before committing
	$(BIN)/python -m pytest -n 2 --update-golden -m "not gpu and not soak and not types and not compilers"

inventory: venv ## write the lists in docs/architecture.md, kernels.md, torch.md and api.md anew
	PYTHONPATH=. $(BIN)/python tools/inventory.py
	PYTHONPATH=. $(BIN)/python tools/reference.py

pictures: venv ## draw the pictures of docs/layouts.md and README.md, and the steps of docs/checking.md, anew
	PYTHONPATH=. $(BIN)/python tools/pictures.py && PYTHONPATH=. $(BIN)/python tools/measured.py

docs: venv ## the documentation as a site in build/site, with every link checked
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	PYTHONPATH=. $(BIN)/python tools/site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

diff: venv ## what a change does to the CUDA text of every example and library kernel: make diff BASE=main
	@tools/diff.sh $(BASE) $(BIN)/python

clean: ## remove what was built, .venv included
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
