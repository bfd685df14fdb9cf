# make demo: install what it needs into .venv, run the digits example, write a report.
# make test: install the rest into .venv, then everything CI runs (the tests build the documentation's site, too), in three
#   processes; as root on Debian also Chromium, for the explorer's tests.
# make docs: the documentation as a site, in site/.
# make wheel-check: build the package, install the wheel into an empty environment of PYTHON, and use it there, without
#   torch and with it.
# make web: build the explorer's program from web/ (needs Node; what it makes is committed).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNNING := $(VENV)/.running
INSTALLED := $(VENV)/.installed
DEMO := runs/digits-mlp

.PHONY: demo test lint types unit docs browser web wheel-check soak benchmark tables figures clean

$(RUNNING): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[torch]'
	touch $@

$(INSTALLED): $(RUNNING)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(RUNNING)
	$(BIN)/memfluence run digits --workers 2 --out $(DEMO)
	$(BIN)/memfluence pairs $(DEMO)
	$(BIN)/memfluence report $(DEMO)

test: lint types unit

lint: $(INSTALLED)
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs

types: $(INSTALLED)
	$(BIN)/mypy

unit: $(INSTALLED) browser  # three for two cores: many tests wait for other processes
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

browser:
	@for one in "$$MEMFLUENCE_CHROMIUM" chromium chromium-browser google-chrome; do \
		if [ -n "$$one" ] && command -v "$$one" >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium \
			>/dev/null && exit 0; fi; \
	echo "Chromium is missing: tests of the explorer in a browser are skipped. Install it, or name one in MEMFLUENCE_CHROMIUM."

web:
	cd web && npm ci --no-fund --no-audit && npm run build

wheel-check:
	rm -rf build/wheel dist
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check build
	build/wheel/bin/python -m build --quiet --outdir dist
	$(PYTHON) -m venv --clear build/wheel
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	mkdir build/wheel/empty && cd build/wheel/empty && ! ../bin/python -c 'import torch' 2>/dev/null \
		&& ../bin/python -c 'from sklearn.datasets import load_wine; load_wine(as_frame=True).frame.to_csv("wine.csv")' \
		&& ../bin/memfluence run 'csv:wine.csv?label=target&test=0.2' --learner sklearn.naive_bayes:GaussianNB \
			--trials 64 --quiet --out table \
		&& ../bin/memfluence mislabels table && ../bin/memfluence report table --out page
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls dist/*.whl)[torch]"
	cd build/wheel/empty && ../bin/memfluence run digits --trials 64 --quiet --out run \
		&& ../bin/memfluence scores run --out scores.csv && ../bin/memfluence report run --out site \
		&& ../bin/python -c 'import memfluence as mf; print(mf.open("run").memorization().shape)'

soak: $(INSTALLED)
	$(BIN)/python -m pytest --soak

benchmark: $(INSTALLED)
	$(BIN)/python benchmarks/batched_mlp.py
	$(BIN)/python benchmarks/estimate.py
	$(BIN)/python benchmarks/engines.py

tables: $(INSTALLED)
	$(BIN)/python docs/make_tables.py
	$(BIN)/python docs/judge_digits.py
	$(BIN)/python benchmarks/explained.py

figures: $(INSTALLED)
	$(BIN)/python docs/make_figures.py

clean:
	rm -rf $(VENV) runs build dist site
