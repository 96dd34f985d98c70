# Every target works alone, on a fresh machine; what is installed already is not installed again.

PY := .venv/bin/python

.PHONY: help demo driver test unit package long check docs serve conformance bench format clean

help:
	@echo "make demo    install vkchi into .venv (and a software Vulkan driver if there is no device), run two operators, make a film of water, jelly and snow"
	@echo "make driver  the newest software Vulkan driver (Debian's Mesa of the backports), where an old, slow one is there"
	@echo "make test    lint, types, and the tests on every software driver"
	@echo "make unit    the tests that need no device, on every system (scripts/unit.py)"
	@echo "make package the wheel and the sdist in out/package/dist, checked and tried in an empty environment"
	@echo "make long    the checks that take hours: 10,000 random programs, interrupts, a shared cache, Ray"
	@echo "make check   lint and types alone"
	@echo "make docs    the documentation as a site, in out/site"
	@echo "make serve   the same site at http://127.0.0.1:8000, rebuilt after each change of a page"
	@echo "make conformance   tests/e2e/language under real Taichi, where TAICHI_PYTHON=... or .venv has it"
	@echo "make bench   the benchmarks, on the default device (beside Taichi: see benchmarks/README.md)"
	@echo "make format  rewrite the sources as ruff format wants them"

demo:
	@scripts/environment cli,gui
	@scripts/vulkan-driver
	$(PY) examples/padding.py --out out
	$(PY) examples/depthwise_conv.py
	$(PY) examples/mpm99.py --demo
	@[ ! -e out/mpm99/mpm99.gif ] || echo "look at the film: out/mpm99/mpm99.gif"
	@echo "next: docs/first_hour.md; .venv/bin/vkchi example sparse_snow; without a name it lists all examples"

driver:
	@scripts/vulkan-driver --newest

test: check
	@scripts/vulkan-driver --tests
	@scripts/partners
	@scripts/browser
	@scripts/ggui
	@scripts/screen
	@scripts/test
	@scripts/package

unit:
	$(if $(filter Windows_NT,$(OS)),python,python3) scripts/unit.py

package:
	@scripts/environment cli
	@scripts/vulkan-driver
	@scripts/package

long:
	@scripts/environment dev
	@scripts/vulkan-driver --tests
	@scripts/partners
	@scripts/long

check:
	@scripts/environment dev
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

docs:
	@scripts/environment docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo "wrote out/site/index.html"

serve:
	@scripts/environment docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs serve

conformance:
	@scripts/environment dev
	@scripts/conformance

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
