# Everything runs in .venv, which the first target that needs it sets up from the hashed locks.

PYTHON ?= python3
UV ?= uv
ARGS ?=

# Another environment that happens to be active must not leak into ours.
unexport PYTHONPATH
unexport PYTHONHOME
unexport VIRTUAL_ENV
# Nor a setting that has every process compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# --no-compile: most of what is installed is never imported; Python compiles the rest on first use.
# --no-deps: a lock is complete, and pip 23 takes a newer release for a name with an extra.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -qq install --no-compile --no-deps

.PHONY: help demo report docs test faults check lock clean

help:
	@echo "make demo    learn the four-room maze and show what was learned"
	@echo "make report  build docs/report.html and fill the tables of both READMEs, from results/"
	@echo "make docs    build the site of docs/ into site/; open site/index.html"
	@echo "make test    run the tests (ARGS='-m thorough' for more of the same, '-m slow' for the long ones)"
	@echo "make faults  kill, damage and starve runs in numbers; half an hour or more"
	@echo "make check   lint, formatting, types and the import contracts"
	@echo "make lock    resolve the locks again with uv (ARGS=--upgrade to move versions)"
	@echo "make clean   delete .venv and caches; runs/ stays"

demo: .venv/.runtime
	$(BIN)/phimu demo $(ARGS)

report: .venv/.runtime
	$(BIN)/phimu report results -o docs/report.html --fill README.md results/README.md $(ARGS)

# NO_MKDOCS_2_WARNING: Material says at every build what it thinks of another project's next release.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict $(ARGS)

# A worker more than there are cores, for some tests wait for other processes; files in the order that
# tests/conftest.py has.
WORKERS = $(shell $(BIN)/python -c "import os; print(min(os.cpu_count() + 1, 5))")

test: .venv/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

faults: .venv/.dev
	$(BIN)/python -m pytest -m faults tests/faults $(ARGS)

check: .venv/.dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

# A stamp is written last, so an install that failed is tried again. A .venv without a working pip
# is what an interrupted set-up leaves behind: it is made anew.
.venv/.runtime: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "phimu needs Python 3.11 or newer; name one with: make PYTHON=python3.11" >&2; exit 1; }
	@echo "setting up .venv (about 160 MB to download, 650 MB on disk, once)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --no-build-isolation -e .
	@touch $@

.venv/.dev: requirements-dev.lock .venv/.runtime
	@echo "adding the test tools and simulators to .venv (about 190 MB to download, 470 MB on disk, once)"
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

COMPILE = $(UV) pip compile pyproject.toml --group build --universal --python-version 3.11 \
  --fork-strategy fewest --generate-hashes --no-emit-index-url --no-emit-find-links \
  --custom-compile-command "make lock" --quiet $(ARGS)

lock:
	$(COMPILE) -o requirements.lock
	$(COMPILE) --extra dev -c requirements.lock -o requirements-dev.lock
	$(COMPILE) --extra ray -c requirements-dev.lock -o requirements-ray.lock

clean:
	rm -rf .venv dist site .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
