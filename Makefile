# Set up a virtual environment and run: `make reproduce` does the main job, `make test` all checks.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
READY := $(VENV)/.ready

.PHONY: reproduce test test-long lint bench clean

reproduce: $(READY)
	$(RUN)python examples/real_survey.py

test: lint
	$(RUN)pytest

test-long: $(READY)
	$(RUN)pytest -m long

lint: $(READY)
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy
	$(RUN)lint-imports

bench: $(READY)
	$(RUN)python -m pip install --quiet --editable ".[dev,bench]"
	$(RUN)python benchmarks/bench.py

clean:
	rm -rf $(VENV)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --editable ".[dev]"
	touch $@
