"""Frame of the conformance suite: its tests run with vkchi, and with real Taichi.

Test modules `import vkchi as ti`. With VKCHI_CONFORMANCE=taichi (`make conformance` sets it) that
import, and those of `vkchi.math` and the like, give Taichi's module of that name. Each test then
starts with its own `ti.init(arch=ti.cpu)`. A test whose result differs on purpose is marked with
its row of docs/language/differences.md, and must fail under Taichi:

    @pytest.mark.ours("integer-division")                # runs under Taichi, and fails there
    @pytest.mark.ours("textures-on-cpu", run=False)      # would crash or hang Taichi

With VKCHI_PYTHON=1 the kernels run as plain Python, with the same results:

- a test ends as skipped if its kernel raises the error of
  `vkchi.python_mode.python_kernel.EXCLUDED`;
- `DIFFERENT_AS_PYTHON` lists the tests that are skipped because the mode differs;
- tests in `SLOW_AS_PYTHON` have the marker `slow_as_python`: scripts/long runs them.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
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


AS_PYTHON = os.environ.get("VKCHI_PYTHON") == "1"
NOT_RUN = "kernels with them do not run as Python"  # vkchi.python_mode.python_kernel.NOT_RUN
EXCLUDED = re.compile(rf"\S+\.py:\d+:\d+: .*: {NOT_RUN}")

# Tests and subjects of rows of `vkchi.python_mode.python_kernel.DIFFERENT`.
CHECKS = "a failed check of debug mode"
TWICE = "functions of Python that run at compile time, and change objects"
RACES = "races in debug mode"
PRINTS = "lines that kernels print"
HALVES = "sums of f16 in a loop"
SHARED = "stores in a row to numbers that share an exponent"
DIFFERENT_AS_PYTHON = {
    "test_atomics.py::test_long_sums_of_f16_are_rounded_once": HALVES,
    "test_captures.py::test_a_zero_with_a_sign_that_functions_change_at_compile_time": TWICE,
    "test_captures.py::test_lists_that_functions_change_at_compile_time": TWICE,
    "test_captures.py::test_vectors_that_functions_change_at_compile_time": TWICE,
    "test_debug.py::test_a_failed_thread_ends_and_the_others_do_not": CHECKS,
    "test_debug.py::test_statements_after_failed_assertion_do_not_run": CHECKS,
    "test_debug.py::test_the_first_failing_iteration_is_reported": CHECKS,
    "test_debug_arithmetic.py::test_vectors_and_augmented_division": CHECKS,
    "test_debug_bounds.py::test_location_of_an_out_of_range_access": CHECKS,
    "test_debug_bounds.py::test_out_of_range_accesses_touch_nothing": CHECKS,
    "test_print.py::test_too_many_lines_are_counted": PRINTS,
    "test_quantised.py::test_floats_that_share_an_exponent": SHARED,
    "test_races.py::test_sums_along_rows": RACES,
}
# Files and tests that take more than about a second as Python.
SLOW_AS_PYTHON = {
    "test_algorithms.py",
    "test_arguments.py::test_tensors_that_torch_needs",
    "test_atomics.py::test_atomics_on_fields",
    "test_atomics.py::test_atomics_on_ndarrays",
    "test_atomics.py::test_float_extremes",
    "test_atomics.py::test_neighbours_in_a_word",
    "test_debug_arithmetic.py::test_a_line_warns_once",
    "test_decompositions.py",
    "test_division.py::test_multiples_are_whole",
    "test_fields.py::test_atomics_of_interleaved_fields",
    "test_fields.py::test_neighbours_across_blocks",
    "test_fields.py::test_nested_field_tree",
    "test_fields.py::test_python_reads_values_that_kernels_wrote",
    "test_fields.py::test_sum_over_a_tree",
    "test_fields_options.py::test_offset_of_one_axis",
    "test_fields_options.py::test_offset_of_two_axes",
    "test_fields_random.py::test_random_tree_matches_numpy",
    "test_loops.py::test_variables_of_many_iterations",
    "test_loops.py::test_variables_that_iterations_assign_before_they_read_them",
    "test_print.py::test_numbers_with_six_decimals",
    "test_print.py::test_parallel_loops_print_in_the_order_of_their_iterations",
    "test_programs_searches.py",
    "test_quantised.py::test_fixed_point_numbers_are_the_nearest_step",
    "test_quantised.py::test_floats_of_fewer_bits",
    "test_quantised.py::test_integers_keep_their_low_bits",
    "test_quantised.py::test_invocations_that_write_to_one_word_lose_nothing",
    "test_random.py",
    "test_real_functions.py::test_recursion_through_another_function_from_several_calls",
    "test_real_functions.py::test_recursion_from_several_calls_goes_deep",
    "test_sparse_fields.py::test_appended_by_many",
    "test_sparse_fields.py::test_cells_are_inactive_at_first",
    "test_sparse_fields.py::test_life_on_a_bitmask",
    "test_sparse_fields.py::test_neighbours_in_one_block",
    "test_sparse_fields.py::test_particles_in_lists_of_cells",
    "test_sparse_matrices.py",
    "test_sparse_random.py",
    "test_structs_fields.py::test_a_field_made_of_its_members",
    "test_taichi_names.py",
    "test_textures.py",
    "test_tools.py::test_a_julia_set",
    "test_tools.py::test_image_file_round_trip",
    "test_tools.py::test_tensors_paths_and_large_suffixes",
}


def names_of(item: pytest.Item) -> tuple[str, str]:
    """The names of a test in the tables above: its file, and its function in it."""
    file = item.path.name
    return file, f"{file}::{getattr(item, 'originalname', item.name)}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Apply the tables with VKCHI_PYTHON=1; expect tests marked `ours` to fail in Taichi."""
    here = os.path.dirname(__file__)
    for item in items if AS_PYTHON else ():
        if str(item.path.parent) != here:
            continue
        names = names_of(item)
        if names[1] in DIFFERENT_AS_PYTHON:
            reason = f"differs as plain Python: {DIFFERENT_AS_PYTHON[names[1]]}"
            item.add_marker(pytest.mark.skip(reason=reason))
        if not SLOW_AS_PYTHON.isdisjoint(names):
            item.add_marker(pytest.mark.slow_as_python)
    for item in items if IS_TAICHI else ():
        mark = item.get_closest_marker("ours")
        if mark is not None:
            reason, run = mark.args[0], mark.kwargs.get("run", True)
            item.add_marker(pytest.mark.xfail(reason=reason, run=run, strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    with skipped_if_excluded():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with skipped_if_excluded():
        return (yield)


@contextmanager
def skipped_if_excluded() -> Iterator[None]:
    """Skip a test with VKCHI_PYTHON=1 if its kernel does not run as Python, and the error names its
    line."""
    try:
        yield
    except NotImplementedError as error:
        if AS_PYTHON and EXCLUDED.match(str(error)):
            pytest.skip(str(error).splitlines()[0])
        raise


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
