"""The compiler's memos do not grow with the number of compiled kernels."""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
import weakref
from collections import deque
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import vkchi
from tests.unit.kernels import Field, define, lower
from vkchi.compiler import build_artifact
from vkchi.interrupts.weak import LEAST, WeakTable, insert_bounded
from vkchi.ir import builder, verify
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param
from vkchi.target.caps import FULL
from vkchi.target.options import Options
from vkchi.types import Array, Type, f32, i32


def constants(numbers: range) -> Func:
    b = Builder()
    with b.region() as body:
        for number in numbers:
            b.const(number, i32)
        b.emit("yield")
    return Func("f", (), body)


def test_types_of_constants_are_not_kept_for_ever() -> None:
    limit = builder._infer.cache_info().maxsize
    assert limit is not None
    constants(range(limit + 100))
    assert builder._infer.cache_info().currsize <= limit


def test_verified_funcs_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_REMEMBERED", 100)
    verify._GOOD.clear()
    verify._GOOD_ARRAYS.clear()
    for extent in range(350):
        x = Param(Array.of(f32, 1, (900000 + extent,)), "x")
        b = Builder()
        with b.region() as body:
            b.emit("shape", x, attr=0)
            b.emit("yield")
        verify.verify(Func("f", (x,), body))
    assert 0 < len(verify._GOOD) <= 100
    assert 0 < len(verify._GOOD_ARRAYS) <= 100


def test_array_types_live_as_long_as_someone_holds_them() -> None:
    made = Array.of(f32, 1, (123457,))
    assert Array.of(f32, 1, (123457,)) is made
    del made
    gc.collect()
    before = len(Type._interned)
    for extent in range(1000):
        Array.of(f32, 1, (900000 + extent,))
    gc.collect()
    assert len(Type._interned) <= before + 10


class Thing:
    pass


def test_entries_added_during_cleanup_stay() -> None:
    table: WeakTable[int, Thing] = WeakTable()
    kept = [Thing() for _ in range(LEAST + 1)]

    class Meddling(weakref.ref):  # type: ignore[type-arg]
        met = False

        def __call__(self) -> Any:
            if not Meddling.met:
                Meddling.met = True
                table.put(-1, weakref.ref(kept[0]))
            return super().__call__()

    for k, thing in enumerate(kept):
        table.put(k, Meddling(thing))
    assert Meddling.met
    assert table.get(-1) is kept[0]
    assert len(table) == LEAST + 2


# --- every cache ---------------------------------------------------------------------------------

# Caches without a limit, and why they need none.
FEW = {
    "vkchi.interop.host_views.to_taichi_type": "number types; errors are not remembered",
    "vkchi.types.core.integer_range": "number types",
    "vkchi.linalg.matrixfree.vectors_of": "number types",
    "vkchi.ir.literal._pattern": "names of PATTERNS",
    "vkchi.opt.math.arithmetic.formulas_for": "two truth values",
    "vkchi.opt.pipeline.load_pass": "passes",
    "vkchi.algorithms.radix_sort.digit_kernels": "lengths of digits",
    "vkchi.algorithms.radix_sort.key_kernels": "number types",
    "vkchi.algorithms.runs.reduce_kernels": "operations",
    "vkchi.operators.fast_path.direct_class": "classes that torch has for operators",
}


def modules() -> list[ModuleType]:
    """Every module of vkchi that can be imported here."""
    names = (m.name for m in pkgutil.walk_packages(vkchi.__path__, "vkchi.", onerror=skip))
    return [m for name in names if not name.endswith("__main__") for m in imported(name)]


def skip(name: str) -> None:
    """A package that cannot be imported here has no modules here."""


def imported(name: str) -> list[ModuleType]:
    """A module, if the extras that it is built on are installed."""
    try:
        return [importlib.import_module(name)]
    except ModuleNotFoundError as e:
        if (e.name or "vkchi").partition(".")[0] == "vkchi":
            raise
        return []


def caches() -> dict[str, Any]:
    """Functions with memos, by name."""
    found = (v for m in modules() for v in list(vars(m).values()) if hasattr(v, "cache_info"))
    return {f"{v.__module__}.{v.__qualname__}": v for v in found}


def test_caches_have_a_limit() -> None:
    """But those of functions without parameters."""
    free = {
        name for name, f in caches().items()
        if f.cache_info().maxsize is None and inspect.signature(f).parameters
    }  # fmt: skip
    assert {n for n in free if n.startswith("vkchi.")} == FEW.keys()


def tables() -> dict[str, int]:
    """Number of entries in tables of modules and classes, when caches with a limit are empty."""
    for f in caches().values():
        f.cache_clear()
    verify._GOOD.clear()
    verify._GOOD_ARRAYS.clear()
    gc.collect()
    kinds = dict, list, set, deque, WeakTable
    found = {}
    for m in modules():
        classes = [v for v in vars(m).values() if isinstance(v, type)]
        places = [m, *(v for v in classes if v.__module__ == m.__name__)]
        for place in places:
            found.update({
                f"{m.__name__}.{getattr(place, '__qualname__', '')}.{name}": len(v)
                for name, v in list(vars(place).items()) if isinstance(v, kinds)
            })  # fmt: skip
    return found


def compiled(number: int) -> None:
    """Compile a kernel with constants and shapes that no other one has."""
    x = Field(np.zeros((number % 50 + 1, 7 + number), np.float32))
    fn = define(f"def f(y: ti.types.ndarray()):\n    for i in y:\n        y[i] += x[0, i] * {number}.5 + {number}", x=x)  # fmt: skip  # noqa: E501
    build_artifact(lower(fn, np.zeros(4, np.float32)).func, Options(), FULL)


def test_tables_do_not_grow() -> None:
    compiled(1000)
    before = tables()
    for number in range(60):
        compiled(number)
    after = tables()
    assert {name: n for name, n in after.items() if n > before.get(name, 0) + 5} == {}


def test_the_oldest_go() -> None:
    table: dict[int, int] = {}
    for k in range(10):
        insert_bounded(table, k, k * k, 4)
    assert list(table) == [6, 7, 8, 9]
    insert_bounded(table, 6, 0, 4)
    assert table[6] == 0
    assert len(table) == 4
