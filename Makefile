# Two commands matter: `make quickstart` and `make test`. Everything is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Exact versions, with a CPU build of torch. For GPUs: `make quickstart CONSTRAINTS=`.
CONSTRAINTS ?= constraints.txt
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	$(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

.PHONY: quickstart test test-fast lint format clean

quickstart: $(VENV)/installed
	$(BIN)/mtnlg run quickstart

test: $(VENV)/installed-test
	$(BIN)/python -m pytest

test-fast: $(VENV)/installed-test
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "mtnlg needs Python 3.11 or newer; say which: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml $(CONSTRAINTS)
	$(PIP_INSTALL) --editable .
	touch $@

$(VENV)/installed-test: $(BIN)/python pyproject.toml $(CONSTRAINTS)
	$(PIP_INSTALL) --editable '.[test]'
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build *.egg-info
