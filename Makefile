# Everything runs in .venv, built from requirements.lock on first use.
# Needs only make, git and Python 3.11 to 3.14; choose one with PYTHON=python3.12. A newer one needs a C++
# compiler as well, since not all packages are built for it yet: it is taken where there is no other.

ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2> /dev/null && \
	echo $$python && exit; done; echo python3)
endif
# one more than the two cores that tests are made for: many wait for servers
WORKERS ?= 3
BY_FILE := --dist loadfile --no-loadscope-reorder
BIN := .venv/bin
READY := .venv/ready
UV := $(BIN)/uv --quiet --system-certs
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install

# Without it every process of a test would compile NumPy, SciPy and ours anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup spark peers pages browser pictures test promises oldest mutants check format demo benchmark release docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## build the environment

spark: .venv/spark ## install Spark, for the Spark engine and its tests (456 MB; needs Java 17); make test does where Java is

pages: $(READY) ## build the pages of the service, unless they are as their source
	@$(BIN)/python web/node_tools.py pages

browser: ## install Chromium, which the tests of the pages drive, where that can be done
	@sh web/install_browser.sh

pictures: $(READY) pages browser ## take the pictures of the pages in the documentation anew
	$(BIN)/python tools/pictures.py $(ARGS)
	$(BIN)/python tools/dashboard_pictures.py
	$(BIN)/python tools/hour_pictures.py
	$(BIN)/python tools/district_pictures.py

test: $(READY) pages browser ## run the tests, the documentation's included; not the long ones
	@# all workers begin at once, and each would compile all tests: done before, beside what is installed
	@{ test -e .venv/compiled || { $(BIN)/pytest --collect-only -qq > /dev/null 2>&1; touch .venv/compiled; }; } & \
	if command -v java > /dev/null; then $(MAKE) --no-print-directory spark || \
		echo "Spark could not be installed: its tests cannot run" >&2; fi; wait
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) $(BY_FILE) -m "not slow" $(if $(CI),--color=no --quiet) $(ARGS)

promises: $(READY) ## run the long ones: the campaigns behind the promises (three quarters of an hour on two cores)
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) $(BY_FILE) -m slow $(ARGS)

oldest: build/oldest/ready pages ## run the tests with the oldest packages that pyproject.toml allows
	@# they warn of each other, and have neither the tools of a release nor those of the pages
	OPENBLAS_NUM_THREADS=1 build/oldest/bin/pytest -n $(WORKERS) $(BY_FILE) -m "not slow" -W ignore::DeprecationWarning \
		$(addprefix --ignore=tests/,test_release.py test_web.py test_pages.py unit/test_spark.py) $(ARGS)

mutants: $(READY) ## plant faults in the privacy core and see whether its tests find them (half an hour)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tools/mutants.py $(ARGS)

check: $(READY) ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python web/node_tools.py check

format: $(READY) ## format the code and mend what the linter can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/python web/node_tools.py format

demo: $(READY) pages ## the whole loop on a simulated city, with its dashboard; ARGS=--once ends with the summary
	$(BIN)/geoveil demo $(ARGS)

peers: build/peers/ready ## install the libraries that benchmarks compare with, in an environment of their own

benchmark: $(READY) ## each figure beside its yardstick, on one core, into docs/benchmarks.md; ARGS="products spark" for some
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks --page docs/benchmarks.md $(ARGS)

release: $(READY) ## build wheel and source archive twice, compare, and say what they are made of
	$(BIN)/python tools/release.py

docs: $(READY) ## build the documentation into site/; warnings are errors
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet \
		--doctree-dir build/doctrees docs site

lock: $(READY) ## pin the dependencies again; ARGS=--upgrade for newer ones
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes \
		--extra all --group dev --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" $(ARGS) pyproject.toml --output-file requirements.lock
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes \
		--extra spark --constraint requirements.lock --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" $(ARGS) pyproject.toml --output-file requirements-spark.lock
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" $(ARGS) benchmarks/peers.in --output-file requirements-peers.lock

clean: ## remove the environment, caches and everything built
	rm -rf .venv build dist site docs/reference web/*/node_modules web/sdk/dist src/geoveil/server/page_files .mypy_cache .pytest_cache .ruff_cache .hypothesis

# pip checks the hash of uv, uv those of the rest in a tenth of the time; pip stands in where uv
# finds no packages, since only pip reads pip's own settings (a mirror, a proxy).
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Geoveil needs Python 3.11 or newer with venv: $(PYTHON) is missing or too old. Try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up .venv ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 15))' || exit 0; \
		echo "Not all packages are built for this Python yet: it takes minutes and a C++ compiler. Others: make PYTHON=python3.14"
	@$(PYTHON) -m venv --clear .venv
	@awk '/^[^ #]/ {wanted = /^uv==/} wanted' requirements.lock > .venv/uv.txt
	@$(PIP) --require-hashes --requirement .venv/uv.txt
	@$(UV) pip install --python $(BIN)/python --require-hashes --requirement requirements.lock || \
		{ echo "uv could not install the packages; trying pip ..." >&2; $(PIP) --require-hashes --requirement requirements.lock; }
	@# its documentation makes newer Pythons warn where it is compiled, which uv does not do
	@$(BIN)/python -W ignore -m compileall -q .venv/lib/python*/site-packages/ot
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# Apart from the rest: a source archive of 456 MB. Its Java archives are compressed as they are: made into a
# wheel that does not compress them again it takes a third of the time, and --no-deps (the lock names all)
# keeps uv from fetching it twice. uv keeps the wheel for the next environment.
.venv/spark: $(READY) requirements-spark.lock
	@echo "Installing Spark ..."
	@$(UV) pip install --python $(BIN)/python --no-deps --require-hashes --requirement requirements-spark.lock \
		--config-settings-package "pyspark:--build-option=bdist_wheel --compression stored" || \
		{ echo "uv could not install the packages; trying pip ..." >&2; $(PIP) --no-deps --require-hashes --requirement requirements-spark.lock; }
	@touch $@

build/peers/ready: $(READY) requirements-peers.lock
	@$(PYTHON) -m venv --clear build/peers
	@$(UV) pip install --python build/peers/bin/python --require-hashes --requirement requirements-peers.lock
	@touch $@

build/oldest/ready: $(READY)
	@$(PYTHON) -m venv --clear build/oldest
	@$(UV) pip install --python build/oldest/bin/python --resolution lowest-direct --editable ".[all]" --group test
	@touch $@
