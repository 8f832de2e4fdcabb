# One line a target. `make build` and `make test` do all the set-up that they need.
PYTHON ?= python3
recipe ?= yolo_640_j6p
VENV := .venv
BIN := $(VENV)/bin
# A second environment: in the first one, the suite shows what works without the extra.
QUALCOMM := .venv-qualcomm

known := recipe pytest PYTHON VENV
# make itself ignores a misspelt variable, and would build something else
unknown := $(strip $(foreach name,$(filter-out $(known),$(.VARIABLES)),$(if $(filter command line,$(origin $(name))),$(name))))
$(if $(unknown),$(error unknown variable: $(unknown). Known: $(known)))

.PHONY: build test test-qualcomm check lock clean

build: $(VENV)/installed ; $(BIN)/npubake build recipe=$(recipe)
test: $(VENV)/installed-dev ; $(BIN)/pytest -n 2 --dist loadfile $(pytest)
test-qualcomm: $(QUALCOMM)/installed ; $(QUALCOMM)/bin/pytest -n 2 --dist loadfile tests/qualcomm $(pytest)
check: $(VENV)/installed-dev ; $(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python tests/size.py
lock: $(VENV)/installed-dev ; $(BIN)/python requirements/lock.py
clean: ; rm -rf build .npubake $(VENV) $(QUALCOMM)

$(VENV)/pip: ; $(PYTHON) -m venv $(VENV) && touch $@
$(VENV)/installed: $(VENV)/pip requirements/runtime.lock pyproject.toml ; $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.lock && $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . && touch $@
$(VENV)/installed-dev: $(VENV)/installed requirements/dev.lock ; $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock && touch $@

$(QUALCOMM)/pip: ; $(PYTHON) -m venv $(QUALCOMM) && touch $@
$(QUALCOMM)/installed: $(QUALCOMM)/pip requirements/qualcomm.lock pyproject.toml ; $(QUALCOMM)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/qualcomm.lock && $(QUALCOMM)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . && touch $@
