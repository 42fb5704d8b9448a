# Every target makes its own virtual environment in .venv first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: demo test lint parity libtpu clean

demo: $(STAMP)  ## Train the embedded default on CPU and draw what it found.
	$(BIN)/python launch.py --config=configs/demo.py --workdir=runs/demo

test: $(STAMP)  ## Lint, then all tests, on two processes.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

parity: $(STAMP)  ## Compare with the golden numbers of the released program.
	$(BIN)/python -m ocloc_jax.parity tests/golden/*.npz

libtpu: .libtpu/installed  ## The compiler for TPUs, 200 MB, for --mode=plan only.

# Not in .venv: there JAX would look for a TPU at every start.
.libtpu/installed: $(STAMP)
	rm -rf .libtpu
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt --target .libtpu libtpu
	touch .libtpu/installed

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $(STAMP)

clean:
	rm -rf .venv .libtpu .jax_cache .pytest_cache .ruff_cache
