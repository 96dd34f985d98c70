"""Types and values of expressions against the output of Taichi 1.7.4 (taichi_results.txt)."""

from __future__ import annotations

import builtins
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.lowering import Building
from vkchi import types
from vkchi.frontend.ops.trace import Tracer
from vkchi.ir.core import Value
from vkchi.lang import atomic_functions, elementwise, matrix
from vkchi.lang import math as tm
from vkchi.types import f16, f32, f64, i8, i32, i64, u1, u8, u32, u64

VARIABLES: dict[str, tuple[Any, Any]] = {
    "i": (i32, -7), "j": (i32, 2), "u": (u32, 3), "f": (f32, 2.5), "d": (f64, 1.5), "b": (u1, True),
    "s": (i8, 100), "us": (u8, 200), "l": (i64, 5), "ul": (u64, 7), "h": (f16, 1.5),
    "v2": (types.vector(2, f32), [1, 2]), "v3": (types.vector(3, f32), [1, 2, 3]),
    "iv": (types.vector(2, i32), [1, -2]), "m2": (types.matrix(2, 2, f32), [[1, 2], [3, 4]]),
    "im": (types.matrix(2, 2, i32), [[1, 2], [3, 4]]),
}  # fmt: skip

# Differences from Taichi: our result, and the reason.
DIFFERENT: dict[str, tuple[str, str, str]] = {
    "-b": ("i32", "-1", "truth values count as integers"),
    "b+b": ("i32", "2", "truth values count as integers"),
    "i%j": ("i32", "1", "Taichi's constant folding forgets that % and // round down"),
    "i//j": ("i32", "-4", "Taichi's constant folding forgets that % and // round down"),
    "us//ti.u8(7)": ("u8", "28", "Taichi takes 200 for a negative number"),
    "min(v2)": ("f32", "1.0", "Python's min of one vector is its smallest component"),
    "ti.Vector([True,False])": ("u1<2>", "[1, 0]", "truth values stay what they are"),
    "tm.ivec2(v2)": ("i32<2>", "[1, 2]", "the type that is called decides"),
    "tm.mat2(im)": ("f32<2x2>", "[[1, 2], [3, 4]]", "the type that is called decides"),
}


def namespace(cx: Building) -> dict[str, Any]:
    """Names for expressions: Handles for the variables, functions that act on them."""
    handles = {k: Tracer(cx, cx.param(t, v, k)) for k, (t, v) in VARIABLES.items()}
    any_handle = handles["i"]

    def known(fn: Any) -> Any:
        return lambda *args, **kwargs: any_handle.apply(fn, args, kwargs)

    ti = SimpleNamespace(**{**vars(types), **vars(elementwise), **vars(atomic_functions)})
    ti.Vector, ti.Matrix = known(matrix.Vector), known(matrix.Matrix)
    for name in ("zero", "one", "identity", "diag", "unit", "rows", "cols"):
        maker = known(getattr(matrix, name))
        setattr(ti.Vector, name, maker)
        setattr(ti.Matrix, name, maker)
    for name in types.SCALARS:
        setattr(ti, name, known(types.SCALARS[name]))
    ti.math = tm
    names = ("abs", "max", "min", "pow", "int", "float", "bool", "sum", "len", "round")
    dtype = {**{f"ti.{name}": t for name, t in types.SCALARS.items()}, "int": int, "float": float}
    return {
        **handles,
        "ti": ti,
        "tm": tm,
        "dtype": dtype,
        **{n: known(getattr(builtins, n)) for n in names},
    }


def read_cases() -> list[tuple[str, str, str]]:
    path = Path(__file__).with_name("taichi_results.txt")
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return [tuple(line.rsplit(" | ", 2)) for line in lines]  # type: ignore[misc]


@pytest.mark.parametrize(("expression", "type", "value"), read_cases())
def test_like_taichi(expression: str, type: str, value: str) -> None:
    cx = Building()
    spelled = re.sub(r"\b(ti\.[iuf]\d+|int|float)(?=[,)])", r"dtype['\1']", expression)
    result = eval(spelled, namespace(cx))
    v = result.value if isinstance(result, Tracer) else result
    type, value, _ = DIFFERENT.get(expression, (type, value, ""))
    expected = eval(value, {"inf": math.inf, "nan": math.nan})
    if isinstance(v, Value):
        assert str(v.type) == type
    got = cx.run(v)
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=3e-6, atol=2e-6)
