# Two commands: `make run` (install, fetch the demo model, evolve) and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The version that coevo is tested with; other versions may bring gigabytes of CUDA libraries.
TORCH  ?= torch==2.13.0
MODEL  ?= smollm2-135m

.DEFAULT_GOAL := help
.PHONY: help run test lint bench model clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/'

run: $(VENV)/.installed model ## install coevo, fetch the demo model and let it evolve a heuristic
	$(BIN)/coevo run --param es --context eoh

test: $(VENV)/.tested model ## install what the tests need and run them (pytest itself is offline)
	$(BIN)/python -m pytest --cov --cov-report=term

lint: $(VENV)/.tested ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

bench: $(VENV)/.installed model ## the speed claims, measured on this machine
	$(BIN)/coevo bench noise
	$(BIN)/coevo bench serve
	$(BIN)/coevo bench sandbox

model: $(VENV)/.installed ## fetch the demo model into your cache (93 MB download, once)
	$(BIN)/coevo model pull $(MODEL)

clean: ## remove the environment (runs and the model cache stay)
	rm -rf $(VENV)

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

# Group dev is in requirements form, because pip before 25.1 knows no dependency groups.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable '.[transformers]'
	touch $@

$(VENV)/.tested: requirements-dev.txt $(VENV)/.installed
	$(BIN)/pip install --quiet --requirement requirements-dev.txt
	touch $@
