# make book   set up, build the site            make test   set up, run every test and every notebook
# Both make .venv when it is missing, and need no network once it is there.

PYTHON ?= python3
PORT ?= 8000
BIN := .venv/bin
READY := .venv/.ready
LOWEST := .venv-lowest
# Exercises are checked with an empty record, so that nothing depends on who runs the notebooks.
NBVAL := GPTLAB_HOME='$(CURDIR)/_build/nbval-home' PYTHONPATH=scripts OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p nbval_hint -p validated --nbval --nbval-current-env \
	--nbval-cell-timeout 300 --nbval-sanitize-with tests/nbval.cfg -n 2 --dist loadscope

# Before an environment is made: is there a Python for it?
define PYTHON_IS_THERE
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "Python 3.11 or newer is needed: install it, or name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
@$(PYTHON) -c 'import venv, ensurepip' || { \
	echo "Python's venv module is missing: on Debian or Ubuntu, apt-get install python3-venv"; exit 1; }
endef

.PHONY: help setup book test lowest lint notebooks gpu serve bench exercises repository release stamp clean

help:
	@echo 'make book        set up, and build the site into _build/html'
	@echo 'make test        set up, build the site, run all tests and every notebook'
	@echo 'make setup       the environment alone'
	@echo "make lowest      the package's quick tests with the lowest versions that pyproject.toml allows, in .venv-lowest"
	@echo 'make notebooks   execute every notebook and store its outputs (NB=book/01-tokens.ipynb for one)'
	@echo 'make gpu         on a machine with CUDA: the tests that need it, and what every notebook would print otherwise'
	@echo 'make serve       show the built site on http://127.0.0.1:8000'
	@echo 'make lint        ruff and mypy'
	@echo 'make exercises   how many mistakes the checker recognises, and how long it takes'
	@echo 'make bench       speed and memory, side by side with transformers'
	@echo 'make repository NAME=owner/repo   set the address of the repository everywhere'
	@echo 'make stamp       put the last run of the notebooks on their pages: "Validated ..."'
	@echo 'make release VERSION=x.y.z   set the version everywhere, and say how to publish it'

setup: $(READY)

$(READY): requirements.txt pyproject.toml
	$(PYTHON_IS_THERE)
	@echo 'Setting up .venv (the first time, PyTorch is a large download)'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt --editable .
	@touch $@

book: $(READY)
	@# --all: Sphinx does not repeat the warnings of a page that it need not read again.
	@$(BIN)/jupyter-book build . --all -W -n --keep-going
	@echo 'Open _build/html/index.html, or run: make serve'

test: book
	@$(BIN)/python scripts/notebooks.py check
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope
	@rm -rf _build/nbval-home
	@$(NBVAL) book

# The package at the lowest versions that pyproject.toml allows, in a folder beside .venv. Needs the network once.
# Left out: tests/parity, for the transformers of requirements.txt need a newer huggingface_hub; what runs the book's
# notebooks or builds the site.
lowest: $(LOWEST)/.ready
	@OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n 2 --dist loadscope -m "not slow" --ignore tests/book --ignore tests/parity \
		--ignore tests/test_validated.py --deselect tests/test_repository.py::test_buttons_follow_the_address

$(LOWEST)/.ready: pyproject.toml requirements.txt scripts/lowest.py
	$(PYTHON_IS_THERE)
	@echo 'Setting up $(LOWEST) (the first time, PyTorch is a large download)'
	@$(PYTHON) -m venv $(LOWEST)
	@$(PYTHON) scripts/lowest.py --tools > $(LOWEST)/requirements.txt
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(LOWEST)/requirements.txt --editable .
	@touch $@

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

notebooks: $(READY)
	@$(BIN)/python scripts/notebooks.py run $(NB)

gpu: $(READY)
	@$(BIN)/python scripts/validate.py --gpu

serve: book
	@echo 'http://127.0.0.1:$(PORT) (Ctrl-C stops it; if the port is taken: make serve PORT=8001)'
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

bench: $(READY)
	@$(BIN)/python -m benchmarks.compare
	@$(BIN)/python -m benchmarks.memory

exercises: $(READY)
	@$(BIN)/python scripts/exercises.py

repository: $(READY)
	@$(BIN)/python scripts/repository.py $(NAME)
	@touch $(READY)  # an address or a version in pyproject.toml is no reason to install again

stamp: $(READY)
	@$(BIN)/python scripts/validated.py record

release: $(READY)
	@$(BIN)/python scripts/release.py $(VERSION)
	@touch $(READY)

clean:
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis
