# Every target sets up what it needs: a virtual environment in .venv with Penstock and its tools.
PYTHON ?= python3
VENV := .venv
PORT ?= 8080
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: run test check format clean venv

venv: $(STAMP)

$(STAMP): pyproject.toml requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-dev.txt -e '.[all]'
	touch $(STAMP)

# A fresh SQLite file each time, with a demonstration worth looking at.
run: $(STAMP)
	rm -rf .demo && mkdir .demo
	PENSTOCK_DATABASE_URL=sqlite:///.demo/penstock.db $(BIN)/penstock up --port $(PORT) --app examples.demo.app:app \
	  --commands examples/demo/commands.toml --pipeline examples.demo.lab

test: $(STAMP) check
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup $(PYTEST_ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/no_sql_outside_store.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
