"""The constant folder on whole tensors; `test_ops` has the scalars of every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.cases import cases, count_args, result_type, signatures
from vkchi.ir.core import Constant, constant_attr, value_of
from vkchi.ir.interp import evaluate
from vkchi.opt.rewrite.fold import fold
from vkchi.types import Scalar, Tensor, f32, f64, i32, u8

SIGNATURES = list(signatures())
Types = tuple[Scalar, ...]


def name_of(signature: tuple[str, Types]) -> str:
    return f"{signature[0]}-{'-'.join(map(str, signature[1]))}"


def same_constant(a: Any, b: Any, t: Scalar) -> bool:
    """True if two bit patterns are one number of type t, or both NaN."""
    x, y = value_of(a, t), value_of(b, t)
    return bool(a == b or (t.kind == "f" and np.isnan(x) and np.isnan(y)))


@pytest.mark.parametrize("signature", SIGNATURES, ids=name_of)
def test_fold_tensors(signature: tuple[str, Types]) -> None:
    kind, types = signature
    inputs = cases(kind, types)[:6]
    wide = tuple(Tensor.of(s, (len(inputs),)) for s in types)
    t = result_type(kind, wide)
    assert isinstance(t, Tensor)
    arrays = [np.array(c, s.dtype) for c, s in zip(zip(*inputs), types)]
    args = tuple(Constant(w, constant_attr(a, w)) for w, a in zip(wide[: count_args(kind)], arrays))
    with np.errstate(all="ignore"):
        want = constant_attr(evaluate(kind, arrays, None, t), t)
    got = fold(kind, args, None, t)
    assert len(got) == len(inputs)
    assert all(same_constant(a, b, t.elem) for a, b in zip(got, want))


def constant(t: Any, value: Any) -> Constant:
    return Constant(t, constant_attr(np.asarray(value), t))


V2, V3 = Tensor.of(f32, (2,)), Tensor.of(f32, (3,))
M23, M32, M33 = (Tensor.of(f32, shape) for shape in ((2, 3), (3, 2), (3, 3)))
SIX = [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("kind", "args", "attr", "t", "want"),
    [
        ("splat", [(f32, 2)], None, V3, [2, 2, 2]),
        ("pack", [(f32, 1), (f32, 2), (f32, 3)], None, V3, [1, 2, 3]),
        ("extract", [(M23, SIX)], 4, f32, 5),
        ("extract_at", [(V3, [1, 2, 3]), (i32, 9)], None, f32, 3),
        ("transpose", [(M23, SIX)], None, M32, [1, 4, 2, 5, 3, 6]),
        ("matmul", [(M23, SIX), (V3, [1, 1, 2])], None, V2, [9, 21]),
        ("outer", [(V3, [1, 2, 3]), (V3, [1, 0, 2])], None, M33, [1, 0, 2, 2, 0, 4, 3, 0, 6]),
        ("sum", [(V3, [1, 2, 3])], None, f32, 6),
    ],
)
def test_tensor_ops(kind: str, args: list[Any], attr: Any, t: Any, want: Any) -> None:
    got = fold(kind, tuple(constant(*arg) for arg in args), attr, t)
    want = np.reshape(want, t.shape) if isinstance(t, Tensor) else want
    assert got == constant_attr(np.asarray(want), t)


@pytest.mark.parametrize("kind", ["floordiv", "mod", "truncdiv", "rem"])
@pytest.mark.parametrize("t", [i32, u8])
def test_integer_division_by_zero_is_not_folded(kind: str, t: Scalar) -> None:
    pair = Tensor.of(t, (2,))
    assert fold(kind, (constant(t, 7), constant(t, 0)), None, t) is None
    assert fold(kind, (constant(pair, [7, 7]), constant(pair, [1, 0])), None, pair) is None
    assert fold(kind, (constant(t, 7), constant(t, 2)), None, t) is not None


def test_zeros_keep_their_sign_and_doubles_their_digits() -> None:
    minus = fold("neg", (Constant(f32, 0),), None, f32)
    assert minus == 0x80000000
    third = fold("div", (constant(f64, 1.0), constant(f64, 3.0)), None, f64)
    assert value_of(third, f64) == 1.0 / 3.0
