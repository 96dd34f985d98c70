# Every target works alone, on a fresh machine; what is installed already is not installed again.

PY := .venv/bin/python
DEMO := examples/demo.py

.PHONY: help demo test check bench format clean

help:
	@echo "make demo    install vkchi into .venv (and a software Vulkan driver if there is no device), run $(DEMO)"
	@echo "make test    lint, types, and the tests on every software driver"
	@echo "make check   lint and types alone"
	@echo "make bench   the benchmarks, on the default device"
	@echo "make format  rewrite the sources as ruff format wants them"

demo:
	@scripts/environment cli,gui
	@scripts/vulkan-driver
	$(PY) $(DEMO)

test: check
	@scripts/vulkan-driver --tests
	@scripts/test

check:
	@scripts/environment dev
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

bench:
	@scripts/environment cli,gui
	@scripts/vulkan-driver
	$(PY) benchmarks/run.py

format:
	@scripts/environment dev
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

clean:
	rm -rf .venv build out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
