# Set up a virtual environment and run: `make reproduce` does the main job, `make test` all checks.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
READY := $(VENV)/.ready
NODE_RUN := node_modules/.bin/
NODE_READY := node_modules/.ready

# Many tests wait for servers and browsers: two more workers than cores keep all cores busy.
WORKERS := $(shell expr 2 + $$(getconf _NPROCESSORS_ONLN))

# Tests write many small files and start hundreds of processes. Files are in memory where there is
# room for them, and no process parses anew what another has parsed.
MEMORY := $(shell df --output=target,avail /dev/shm 2>/dev/null | awk '$$2 + 0 > 2000000 {print $$1}')
MEMORY := $(if $(shell grep ' $(MEMORY) .*noexec' /proc/mounts 2>/dev/null),,$(MEMORY))
unexport PYTHONDONTWRITEBYTECODE

BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
# A proxy that is installed is also started where systemd runs; there whoever wants one installs it.
PROXIES := $(if $(wildcard /run/systemd/system),,nginx caddy)
MISSING := $(if $(BROWSER),,chromium fonts-dejavu-core) \
	$(foreach proxy,$(PROXIES),$(if $(wildcard /usr/sbin/$(proxy) /usr/bin/$(proxy)),,$(proxy))) \
	$(if $(wildcard /usr/lib/*/faketime/libfaketimeMT.so.1),,faketime) \
	$(if $(wildcard /usr/bin/chromium-headless-shell),,chromium-headless-shell)
ROOT := $(if $(filter 0,$(shell id -u)),,sudo -n)
APT := $(ROOT) env DEBIAN_FRONTEND=noninteractive \
	apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10

.PHONY: reproduce demo test test-long kernels lint lint-front-end format bench bench-service bench-workers \
	conformance-vectors dependency-tables tools clean

reproduce: $(READY)
	$(RUN)whitelie reproduce

demo: $(READY)
	$(RUN)whitelie demo

# Compiling fills the core that lint leaves idle.
test: tools
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint kernels
	$(if $(MEMORY),TMPDIR=$(MEMORY)) $(RUN)pytest -rs -n $(WORKERS) --dist worksteal \
		-o tmp_path_retention_policy=failed

test-long: $(READY)
	$(RUN)pytest -m long -rP

kernels: $(READY)
	PYTHONPATH=tests $(RUN)python -m helpers.compile_kernels

lint: $(READY)
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy
	$(RUN)lint-imports
	@$(MAKE) --no-print-directory lint-front-end

lint-front-end: $(NODE_READY)
	@if [ -e $(NODE_READY) ]; then set -ex; \
	$(NODE_RUN)biome check --error-on-warnings; \
	$(NODE_RUN)tsc --project clients/js; \
	else echo "SKIPPED: the checks of JavaScript and CSS, which need Node.js 20, npm and its registry"; fi

format: $(READY) $(NODE_READY)
	$(RUN)ruff check --fix .
	$(RUN)ruff format .
	@if [ -e $(NODE_READY) ]; then set -x; $(NODE_RUN)biome check --write; \
	else echo "SKIPPED: JavaScript and CSS, which need Node.js 20, npm and its registry"; fi

bench: $(READY)
	$(RUN)python -m pip install --quiet --editable ".[dev,bench]"
	$(RUN)python benchmarks/bench.py

bench-service: $(READY)
	$(RUN)python -m pip install --quiet --editable ".[dev,bench]"
	$(RUN)python benchmarks/service.py

bench-workers: $(READY)
	$(RUN)python benchmarks/workers.py

conformance-vectors: $(READY)
	PYTHONPATH=tests $(RUN)python -m helpers.conformance_vectors

dependency-tables: $(READY)
	PYTHONPATH=tests $(RUN)python -m helpers.dependency_tables

# Tests open pages in Chromium, sooner in its headless shell, run nginx and Caddy, and set a process's
# clock with libfaketime; where one cannot be had they are skipped.
tools:
ifneq ($(strip $(MISSING)),)
	@echo "Trying to install Debian's $(strip $(MISSING)), for the tests that need them"
	@$(APT) update >/dev/null 2>&1 </dev/null; \
	for each in $(MISSING); do \
	$(APT) install --yes --no-install-recommends $$each >/dev/null 2>&1 </dev/null || \
	echo "$$each could not be installed (apt-get and root are needed): tests go without it"; done
endif

clean:
	rm -rf $(VENV) node_modules

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --editable ".[dev]"
	touch $@

# Without Node.js or its registry there is no such file, and the next call tries again.
$(NODE_READY): package.json
	@rm -f $@
	@echo "Trying to install Biome and TypeScript from npm"
	@if npm install --silent && $(NODE_RUN)biome --version && $(NODE_RUN)tsc --version; then touch $@; fi \
	</dev/null >/dev/null 2>&1
