"""Generated from the op table: each elementwise row, in each dtype, over edge values.

The row's numpy meaning, the interpreter and the constant folder must agree bit for bit; Python's
own arithmetic says whether the meaning is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops import reference
from tests.ops.cases import (
    CONVERSIONS,
    build_func,
    cases,
    columns,
    count_args,
    result_type,
    same_bits,
    signatures,
    zeros_for,
)
from vkchi.ir.core import constant_attr
from vkchi.ir.interp import evaluate, run_reference
from vkchi.ir.verify import verify
from vkchi.types import Scalar, scalar_of

SIGNATURES = list(signatures())
Types = tuple[Scalar, ...]


def name_of(value: Any) -> str:
    return value if isinstance(value, str) else "-".join(map(str, value))


def mean(kind: str, types: Types, inputs: list[tuple[Any, ...]]) -> Any:
    """The row's numpy meaning, one case at a time."""
    t = result_type(kind, types)
    with np.errstate(all="ignore"):
        return np.array([evaluate(kind, v, None, t) for v in inputs], scalar_of(t).dtype)


def interpret(kind: str, types: Types, arrays: list[Any], shape: tuple[int, ...]) -> Any:
    fn = build_func(kind, types, shape)
    verify(fn)
    out = zeros_for(fn, len(arrays[0]))
    run_reference(fn, dict(zip("abc", arrays), out=out))
    return out


def check_same(got: Any, want: Any, inputs: list[tuple[Any, ...]]) -> None:
    assert got.dtype == want.dtype
    wrong = np.flatnonzero(~same_bits(got, want))
    if wrong.size:
        k = wrong[0]
        pytest.fail(f"{wrong.size} of {len(inputs)}: {inputs[k]} gives {got[k]!r}, not {want[k]!r}")


@pytest.mark.parametrize(("kind", "types"), SIGNATURES, ids=name_of)
def test_interpreter_on_scalars(kind: str, types: Types) -> None:
    inputs = cases(kind, types)
    got = interpret(kind, types, columns(inputs, types), ())
    check_same(got, mean(kind, types, inputs), inputs)


@pytest.mark.parametrize(("kind", "types"), SIGNATURES, ids=name_of)
def test_interpreter_on_tensors(kind: str, types: Types) -> None:
    shape = (3,) if len(kind) % 2 else (2, 2)
    size = int(np.prod(shape))
    inputs = cases(kind, types)
    inputs += inputs[: -len(inputs) % size]
    arrays = [a.reshape(-1, *shape) for a in columns(inputs, types)]
    got = interpret(kind, types, arrays, shape).reshape(-1)
    want = mean(kind, types, inputs)
    if kind in reference.FLOAT and types[0].kind == "f":  # numpy's vector loops may round apart
        assert np.all(distance(got, want) <= reference.ULPS)
    else:
        check_same(got, want, inputs)


@pytest.mark.parametrize(("kind", "types"), SIGNATURES, ids=name_of)
def test_constant_folder_matches_row(kind: str, types: Types) -> None:
    from vkchi.opt.rewrite.fold import FOLDABLE, Constant, fold

    assert kind in FOLDABLE
    t = result_type(kind, types)
    inputs = cases(kind, types)
    for v, want in zip(inputs, mean(kind, types, inputs)):
        args = tuple(Constant(u, constant_attr(x, u)) for u, x in zip(types, v))
        assert fold(kind, args, None, t) == constant_attr(want, t), f"{v} should give {want!r}"


def distance(a: Any, b: Any) -> Any:
    """Number of floats between, per component; 0 for two NaNs, large for one."""
    width = a.dtype.itemsize
    ordered = []
    for v in (a, b):
        bits = np.ascontiguousarray(v).view(f"i{width}").astype(object)
        ordered.append(np.where(np.signbit(v), -(bits & ((1 << (8 * width - 1)) - 1)), bits))
    apart = np.abs(ordered[0] - ordered[1])
    return np.where(np.isnan(a) & np.isnan(b), 0, apart)


@pytest.mark.parametrize(
    ("kind", "types"),
    [(k, ts) for k, ts in SIGNATURES if ts[0].kind in "iu" and k in reference.INTEGER],
    ids=name_of,
)
def test_integer_meaning(kind: str, types: Types) -> None:
    t = types[0]
    inputs = cases(kind, types)
    for v, got in zip(inputs, mean(kind, types, inputs)):
        a, b = (*map(int, v), 0)[:2]
        assert int(got) == reference.wrap(reference.INTEGER[kind](a, b, t.bits), t), v


@pytest.mark.parametrize(
    ("kind", "types"), [(k, ts) for k, ts in SIGNATURES if k in reference.COMPARISON], ids=name_of
)
def test_comparison_meaning(kind: str, types: Types) -> None:
    inputs = cases(kind, types)
    for (a, b), got in zip(inputs, mean(kind, types, inputs)):
        assert bool(got) == reference.COMPARISON[kind](a.item(), b.item()), (a, b)


@pytest.mark.parametrize(
    ("kind", "types"),
    [(k, ts) for k, ts in SIGNATURES if ts[0].kind == "f" and k in reference.FLOAT],
    ids=name_of,
)
def test_float_meaning(kind: str, types: Types) -> None:
    t = types[0]
    inputs = cases(kind, types)
    judged = 0
    for v, got in zip(inputs, mean(kind, types, inputs)):
        try:
            exact = reference.FLOAT[kind](*(float(x) for x in v))
        except (ValueError, OverflowError, ZeroDivisionError):
            continue
        with np.errstate(all="ignore"):
            want = t.dtype.type(exact)
        apart = distance(np.array([got]), np.array([want]))[0]
        limit = 0 if kind in reference.CORRECTLY_ROUNDED else reference.ULPS
        assert apart <= limit, (v, got, want)
        judged += 1
    assert judged >= len(inputs) // 4


@pytest.mark.parametrize(
    ("kind", "types"), [(k, ts) for k, ts in SIGNATURES if k in CONVERSIONS], ids=name_of
)
def test_conversion_meaning(kind: str, types: Types) -> None:
    old, new = types
    inputs = cases(kind, types)
    for (v,), got in zip(inputs, mean(kind, types, inputs)):
        if kind == "bitcast":
            assert got.tobytes() == v.tobytes()
        elif new.kind == "b":
            assert bool(got) == (v.item() != 0)
        elif new.kind == "f":
            with np.errstate(all="ignore"):
                assert same_bits(got, new.dtype.type(v))
        else:
            assert int(got) == reference.wrap(int(v), new)


def test_every_row_takes_something() -> None:
    taken = {kind for kind, _ in SIGNATURES}
    assert all(count_args(kind) in (1, 2, 3) for kind in taken)
    assert taken == {kind for kind, types in SIGNATURES if cases(kind, types)}
