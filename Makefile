# Set-up and checks; everything happens in .venv. `make demo` and `make test` work in a fresh clone.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
OUT := demo_out
PYTEST := $(BIN)/python -m pytest

.PHONY: help demo test lint types test-fast test-slow test-gpu test-real schedules bench bench-compile clean

help:
	@echo "make demo           install, compile a small CNN for sm_90a and host, compare it with onnxruntime"
	@echo "make test           ruff, strict types, the fast tests (15 minutes at most on 2 cores)"
	@echo "make test-slow      full-size models; test-gpu: tests that need a GPU; test-real: published models from PyPI"
	@echo "make schedules      every schedule of every template on host (an hour or less on 2 cores)"
	@echo "make bench-compile  compile time, memory and library size of ResNet-50"
	@echo "make bench          latency on this machine's GPU, written to bench/results/"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "taskc needs Python 3.10 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv is missing: sudo apt-get install python3-venv"; exit 1; }
	@command -v g++ >/dev/null && command -v gcc >/dev/null \
	  || { echo "gcc and g++ are missing: sudo apt-get install g++"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml setup.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

demo: $(VENV)/.run
	@mkdir -p $(OUT)
	$(BIN)/python models/zoo.py cnn_tiny -o $(OUT)/cnn_tiny.onnx
	$(BIN)/taskc compile $(OUT)/cnn_tiny.onnx -o $(OUT)/cnn_tiny.so --target sm_90a,host
	$(BIN)/taskc verify $(OUT)/cnn_tiny.so $(OUT)/cnn_tiny.onnx --device all

test: lint types test-fast

lint: $(VENV)/.test
	$(BIN)/ruff check

types: $(VENV)/.test
	$(BIN)/pyright --pythonpath $(BIN)/python

test-fast: $(VENV)/.test
	$(PYTEST) -q -n $(JOBS) -m 'not slow and not gpu and not real and not schedules'

test-slow: $(VENV)/.test
	$(PYTEST) -q -m 'slow and not gpu'

schedules: $(VENV)/.test
	$(PYTEST) -q -n $(JOBS) -m schedules

test-gpu: $(VENV)/.test
	$(PYTEST) -q -m gpu

test-real: $(VENV)/.test
	$(PYTEST) -q -n $(JOBS) -m real

bench-compile: $(VENV)/.run
	$(BIN)/python bench/compile_time.py

bench: $(VENV)/.run
	$(BIN)/python bench/latency.py --out bench/results/latency.json

clean:
	rm -rf $(VENV) $(OUT) build dist *.egg-info
