# One line a target. `make build` and `make test` do all the set-up that they need.
PYTHON ?= python3
recipe ?= yolo_640_j6p
VENV := .venv
BIN := $(VENV)/bin

known := recipe pytest PYTHON VENV
# make itself ignores a misspelt variable, and would build something else
unknown := $(strip $(foreach name,$(filter-out $(known),$(.VARIABLES)),$(if $(filter command line,$(origin $(name))),$(name))))
$(if $(unknown),$(error unknown variable: $(unknown). Known: $(known)))

.PHONY: build test check lock clean

build: $(VENV)/installed ; $(BIN)/npubake build recipe=$(recipe)
test: $(VENV)/installed-dev ; $(BIN)/pytest -n 2 --dist loadfile $(pytest)
check: $(VENV)/installed-dev ; $(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python tests/size.py
lock: $(VENV)/installed-dev ; $(BIN)/python requirements/lock.py
clean: ; rm -rf build .npubake $(VENV)

$(VENV)/pip: ; $(PYTHON) -m venv $(VENV) && touch $@
$(VENV)/installed: $(VENV)/pip requirements/runtime.lock pyproject.toml ; $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.lock && $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . && touch $@
$(VENV)/installed-dev: $(VENV)/installed requirements/dev.lock ; $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock && touch $@
