# Every target installs what it needs into .venv, and only when pyproject.toml changed since.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALL = @echo 'installing hebblm and what it needs into $(VENV): once, a few minutes, about 2 GB; pip says nothing meanwhile'; $(BIN)/python -m pip install --quiet --editable
MODEL ?= tiny-pydoc-raw
TEXT ?= CHANGELOG.md

.PHONY: demo demo-train demo-real demo-real-kept test slow faults check house docs clean

demo: $(VENV)/.cpu  ## a tiny model of Python's documentation reads NumPy's with eight methods, in about a minute
	$(BIN)/hebblm-eval --checkpoint $(MODEL) --target numpy --max-tokens 20000 --output-path results/demo \
		--methods lstm,cache,knn,mixture,mbpa,hebb,mixture+mbpa,best

demo-train: $(VENV)/.cpu  ## train the demo's model anew, in some minutes, and let that one read
	$(BIN)/hebblm-train --corpus pydoc --preset tiny --output-path runs/tiny-pydoc
	$(MAKE) demo MODEL=runs/tiny-pydoc

demo-real: $(VENV)/.gguf  ## a pretrained model, fetched once (93 MB), reads TEXT=PATH with three methods, in about two minutes, and shows what it learned
	$(BIN)/hebblm-eval --model smollm2-135m --text '$(TEXT)' --max-tokens 5000 --methods lstm,knn,best \
		--show-learned --output-path results/demo-real

demo-real-kept: demo-real  ## keep what that found under recipes/, as it is committed
	mkdir -p recipes/demo-real
	cp results/demo-real/result.json recipes/demo-real/
	$(BIN)/python -m recipes.compact recipes/demo-real

test: $(VENV)/.test  ## run the tests, a process a core
	$(BIN)/python -m pytest -n auto --dist worksteal

slow: $(VENV)/.test  ## run the tests that take many seconds each, which `make test` leaves out
	$(BIN)/python -m pytest -m slow -n auto --dist worksteal

faults: $(VENV)/.test  ## damage thousands of files, kill commands: the figures of recipes/reliability.md, in some hours
	$(BIN)/python -m tests.faults.run

check: $(VENV)/.dev  ## format, lint, types, import order, documentation and its words, two at a time
	@$(MAKE) --no-print-directory --jobs 2 --keep-going check-types check-code check-docs

.PHONY: check-types check-code check-docs
check-types:
	$(BIN)/mypy
check-code:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
check-docs:
	$(BIN)/python -m recipes.plain
	$(BIN)/mkdocs build --strict --quiet

house: $(VENV)/.dev  ## wheel, packages, circles of imports, the way of three settings, and how dense the code is
	$(BIN)/python -m recipes.house

docs: $(VENV)/.dev  ## the documentation as a site, in site/
	$(BIN)/mkdocs build --strict

clean:  ## remove the environment, caches of tools and results; models stay in the user's cache
	rm -rf $(VENV) build dist *.egg-info results runs site
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Editable, so that the models under data/ are found and a changed source needs no second installation.
$(VENV)/.cpu: pyproject.toml | $(VENV)/.created
	$(INSTALL) '.[cpu]'
	@touch $@

$(VENV)/.gguf: pyproject.toml | $(VENV)/.created
	$(INSTALL) '.[cpu,gguf]'
	@touch $(VENV)/.cpu $@

$(VENV)/.test: pyproject.toml | $(VENV)/.created
	$(INSTALL) '.[cpu,test]'
	@touch $(VENV)/.cpu $(VENV)/.gguf $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.created
	$(INSTALL) '.[cpu,dev]'
	@touch $(VENV)/.cpu $(VENV)/.gguf $(VENV)/.test $@
