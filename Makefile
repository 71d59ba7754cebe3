# Every target sets up what it needs: a virtual environment in .venv with Penstock and its tools.
PYTHON ?= python3
VENV := .venv
PORT ?= 8080
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: run test check format clean venv ui ui-test screenshots docs bench bench-quick soak chaos neighbours test-neighbours

venv: $(STAMP)

$(STAMP): pyproject.toml requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-dev.txt -e '.[all]'
	touch $(STAMP)

# The page; nothing is built when its sources have not changed.
ui: $(STAMP)
	$(BIN)/python hatch_build.py

# A fresh SQLite file each time, with a demonstration worth looking at.
run: ui
	rm -rf .demo && mkdir .demo
	PENSTOCK_DATABASE_URL=sqlite:///.demo/penstock.db $(BIN)/penstock up --port $(PORT) --app examples.demo.app:app \
	  --commands examples/demo/commands.toml --pipeline examples.demo.lab

test: ui check ui-test
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup --ignore=tests/neighbours $(PYTEST_ARGS)
	PENSTOCK_TEST_KEYS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup $(PYTEST_ARGS) $(ENCRYPTED)

# What defines the store, once more with encryption at rest.
ENCRYPTED := tests/conformance/test_enqueue.py tests/conformance/test_claim.py tests/conformance/test_finish.py \
  tests/conformance/test_joined.py tests/conformance/test_steer.py tests/conformance/test_recovery.py

# What the tests of tests/neighbours run beside us, and the package index does not have: Debian's packages, each with the
# program that shows that it is there. Another neighbour is one more line.
neighbours:
	tools/neighbour pgbouncer pgbouncer
	tools/neighbour nginx nginx-light
	tools/neighbour caddy caddy

# What a pooler does not do: pass on a server's setting from the URL, and LISTEN.
NOT_POOLED := --deselect 'tests/conformance/test_bad_database.py::test_a_read_only_database[postgresql]' \
  --deselect 'tests/worker/test_worker.py::test_wakes_up_for_a_new_job_without_polling[postgresql]' \
  --deselect 'tests/worker/test_worker.py::test_wakes_up_for_a_job_that_is_to_run_now[postgresql]'

# The real neighbours: their own tests, and then the suites that define the store, the worker, schedules and pipelines, with a
# pooler between them and PostgreSQL.
test-neighbours: ui
	$(BIN)/python -m pytest -q -n 2 tests/neighbours $(PYTEST_ARGS)
	PENSTOCK_TEST_POOLER=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup -k postgresql $(NOT_POOLED) $(PYTEST_ARGS) \
	  tests/conformance tests/worker/test_worker.py tests/triggers/test_schedules.py tests/pipeline/test_populate.py

check: ui
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/no_sql_outside_store.py
	$(BIN)/python tools/no_database_names.py
	$(BIN)/python tools/ui_types.py --check
	$(BIN)/python -c "import hatch_build; hatch_build.npm('run', 'lint')"

ui-test: ui
	$(BIN)/python -c "import hatch_build; hatch_build.npm('test')"

# The pictures of the documentation, from the demonstration that the browser tests plant. Nothing else writes them.
screenshots: ui
	PENSTOCK_SCREENSHOTS=docs/screenshots $(BIN)/python -m pytest -q tests/browser/test_screens.py -k "every_screen and sqlite and not phone"

docs: $(STAMP)
	$(BIN)/python tools/reference.py
	$(BIN)/mkdocs build --strict

bench: $(STAMP)
	$(BIN)/python -m bench.run

bench-quick: $(STAMP)
	$(BIN)/python -m bench.run --quick

# The long runs: a million random steps, and 100,000 generated requests on each database; and faults, kills and power cuts by the
# thousand.
soak: $(STAMP)
	PENSTOCK_SOAK=1 PENSTOCK_EXAMPLES=250 $(BIN)/python -m pytest -q -s tests/properties tests/server/test_schemathesis.py --timeout=86400

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

# Faults under living workers, kills and power cuts, many times over. PENSTOCK_CHAOS_SEED=… repeats the faults of a campaign.
ROUNDS ?= 20
chaos: $(STAMP)
	PENSTOCK_CHAOS_ROUNDS=$(ROUNDS) PENSTOCK_POWER_CUTS=10000 $(BIN)/python -m pytest -q -s tests/faults/test_campaign.py tests/kills tests/races --timeout=7200
