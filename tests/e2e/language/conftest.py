"""Frame of the conformance suite: its tests run with vkchi, and with real Taichi.

Test modules `import vkchi as ti`. With VKCHI_CONFORMANCE=taichi (`make conformance` sets it) that
import, and those of `vkchi.math` and the like, give Taichi's module of that name. Each test then
starts with its own `ti.init(arch=ti.cpu)`. A test whose result differs on purpose is marked with
its row of docs/language/differences.md, and must fail under Taichi:

    @pytest.mark.ours("integer-division")                # runs under Taichi, and fails there
    @pytest.mark.ours("textures-on-cpu", run=False)      # would crash or hang Taichi

With VKCHI_PYTHON=1 the kernels run as plain Python, with the same results. `NOT_AS_PYTHON` lists
the tests that are skipped then.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

IS_TAICHI = os.environ.get("VKCHI_CONFORMANCE") == "taichi"


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that gives Taichi's modules in place of vkchi's."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] != "vkchi":
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return importlib.import_module(spec.name.replace("vkchi", "taichi", 1))

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: Taichi's module was executed when it was imported under its own name."""


if IS_TAICHI:
    sys.meta_path.insert(0, StandIn())

import vkchi as ti  # noqa: E402


def start(**options: Any) -> None:
    """Call ti.init with the options of these tests, and with more."""
    if IS_TAICHI:
        options = {"arch": ti.cpu, "log_level": ti.WARN, **options}
    ti.init(**{"random_seed": 7, **options})


CHECKS = "a failed check raises at once, and the other iterations do not run"
TWICE = "functions of Python that run at compile time run twice"
WORKGROUPS = "operations of workgroups do not run as Python"
LONG = "takes minutes as Python"
NOT_AS_PYTHON = {
    "test_atomics.py::test_long_sums_of_f16_are_rounded_once": LONG,
    "test_captures.py::test_a_zero_whose_sign_functions_change_while_compiling": TWICE,
    "test_captures.py::test_lists_that_functions_change_while_compiling": TWICE,
    "test_captures.py::test_vectors_that_functions_change_while_compiling": TWICE,
    "test_debug.py::test_a_failed_thread_ends_and_the_others_do_not": CHECKS,
    "test_debug.py::test_statements_after_failed_assertion_do_not_run": CHECKS,
    "test_debug.py::test_the_first_failing_iteration_is_told": CHECKS,
    "test_debug.py::test_workgroups_with_barriers_go_on": WORKGROUPS,
    "test_debug_arithmetic.py::test_vectors_and_augmented_division": CHECKS,
    "test_debug_bounds.py::test_place_of_a_stray_access": CHECKS,
    "test_debug_bounds.py::test_shared_array_bounds": WORKGROUPS,
    "test_debug_bounds.py::test_stray_accesses_touch_nothing": CHECKS,
    "test_loops.py::test_variables_of_many_iterations": LONG,
    "test_loops.py::test_variables_that_iterations_assign_before_they_read_them": LONG,
    "test_print.py::test_too_many_lines_are_counted": "no line is lost",
    "test_random.py": LONG,
    "test_simt_block.py": WORKGROUPS,
    "test_simt_subgroup.py": WORKGROUPS,
}


def reason_as_python(item: pytest.Item) -> str | None:
    """The entry of a test in NOT_AS_PYTHON; None if it has none."""
    name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
    return NOT_AS_PYTHON.get(name) or NOT_AS_PYTHON.get(item.path.name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests in NOT_AS_PYTHON with VKCHI_PYTHON=1; expect tests marked `ours` to fail in
    Taichi."""
    here = os.path.dirname(__file__)
    if os.environ.get("VKCHI_PYTHON") == "1":
        for item in items:
            reason = reason_as_python(item) if str(item.path.parent) == here else None
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"as plain Python: {reason}"))
    for item in items if IS_TAICHI else ():
        mark = item.get_closest_marker("ours")
        if mark is not None:
            reason, run = mark.args[0], mark.kwargs.get("run", True)
            item.add_marker(pytest.mark.xfail(reason=reason, run=run, strict=True))


@pytest.fixture(autouse=True)
def own_taichi() -> Iterator[None]:
    """Initialize Taichi for each test, which drops the fields and kernels of the test before."""
    if IS_TAICHI:
        start()
    yield


@pytest.fixture
def init() -> Iterator[Callable[..., None]]:
    """Function that calls ti.init with options, for this test: `init(debug=True,
    default_fp=ti.f64)`."""
    yield start
    start()


@pytest.fixture
def lacks() -> Callable[[str], bool]:
    """Function that is True for scalar types that the device lacks: `lacks("f64")`."""
    if IS_TAICHI:
        return lambda name: False
    from vkchi.runtime import current_runtime

    caps = current_runtime().device.caps
    return lambda name: not (caps.has_type(name) and caps.can_store(name))
