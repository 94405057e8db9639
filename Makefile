# Set up a virtual environment and run: `make reproduce` does the main job, `make test` all checks.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
READY := $(VENV)/.ready

BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
# A proxy that is installed is also started where systemd runs; there whoever wants one installs it.
PROXIES := $(if $(wildcard /run/systemd/system),,nginx caddy)
MISSING := $(if $(BROWSER),,chromium fonts-dejavu-core) \
	$(foreach proxy,$(PROXIES),$(if $(wildcard /usr/sbin/$(proxy) /usr/bin/$(proxy)),,$(proxy)))
ROOT := $(if $(filter 0,$(shell id -u)),,sudo -n)
APT := $(ROOT) env DEBIAN_FRONTEND=noninteractive \
	apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10

.PHONY: reproduce demo test test-long lint bench bench-service bench-workers tools clean

reproduce: $(READY)
	$(RUN)whitelie reproduce

demo: $(READY)
	$(RUN)whitelie demo

test: lint tools
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

# Tests open pages in Chromium, and run nginx and Caddy; where one cannot be had they are skipped.
tools:
ifneq ($(strip $(MISSING)),)
	@echo "Trying to install Debian's $(strip $(MISSING)), for the tests that need them"
	@{ $(APT) update && $(APT) install --yes --no-install-recommends $(MISSING); \
	} >/dev/null 2>&1 </dev/null || \
	echo "It could not be done (apt-get and root are needed): these tests are skipped"
endif

clean:
	rm -rf $(VENV)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --editable ".[dev]"
	touch $@
