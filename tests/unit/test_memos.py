"""What the compiler remembers between kernels does not grow with what users compile."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from vkchi.interrupts.weak import LEAST, WeakTable
from vkchi.ir import builder, verify
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param
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


def test_what_was_verified_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_comes_while_a_table_is_tidied_stays() -> None:
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
