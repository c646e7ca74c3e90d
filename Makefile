# Task running for developers and newcomers; `make demo` and `make test` need only Python >= 3.11, git and make.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1 && echo $$p && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
EXTRA  := $(shell nvidia-smi >/dev/null 2>&1 && echo cuda || echo cpu)
STAMP  := $(VENV)/.installed-$(EXTRA)

.PHONY: setup demo test lint bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Penstock needs Python >= 3.11; install it, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing penstock with the $(EXTRA) extra into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRA),dev]'
	@rm -f $(VENV)/.installed-* && touch $@

demo: setup
	@$(BIN)/python examples/demo.py

test: setup
	$(BIN)/python -m pytest

# mypy needs the package under its import name, and the checkout may be called anything: a folder of links stands for it.
PARTS := $(wildcard *.py) py.typed kernels migrate runtime serving

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@rm -rf build/mypy && mkdir -p build/mypy/penstock && ln -s $(PARTS:%=../../../%) build/mypy/penstock/
	MYPYPATH=build/mypy $(BIN)/mypy --explicit-package-bases -p penstock

bench: setup
	@$(BIN)/python examples/photos/prepare.py
	$(BIN)/penstock migrate examples/photos --out build/photos
	$(BIN)/penstock bench build/photos/models --baseline examples/photos --out build/bench

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache *.egg-info
