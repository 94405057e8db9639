# Set up a virtual environment and run: `make reproduce` does the main job, `make test` all checks.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
READY := $(VENV)/.ready

BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
ROOT := $(if $(filter 0,$(shell id -u)),,sudo -n)
APT := $(ROOT) env DEBIAN_FRONTEND=noninteractive \
	apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10

.PHONY: reproduce demo test test-long lint bench bench-service bench-workers chromium clean

reproduce: $(READY)
	$(RUN)whitelie reproduce

demo: $(READY)
	$(RUN)whitelie demo

test: lint chromium
	$(RUN)pytest -rs -n auto --dist worksteal

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

bench-service: $(READY)
	$(RUN)python -m pip install --quiet --editable ".[dev,bench]"
	$(RUN)python benchmarks/service.py

bench-workers: $(READY)
	$(RUN)python benchmarks/workers.py

# The browser tests open the report in Chromium; where it cannot be had they are skipped.
chromium:
ifeq ($(BROWSER),)
	@echo "Chromium is missing: trying to install Debian's, for the browser tests"
	@{ $(APT) update && \
	   $(APT) install --yes --no-install-recommends chromium fonts-dejavu-core; \
	} >/dev/null 2>&1 </dev/null || \
	echo "Chromium could not be installed (apt-get and root are needed): browser tests are skipped"
endif

clean:
	rm -rf $(VENV)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --editable ".[dev]"
	touch $@
