"""Every elementwise row in every dtype on the device, against the row's meaning.

Integers, bools and exact operations must agree; floats as precision.py allows. A subnormal argument
may count as zero. NaN, infinities and signed zeros are judged where the device promises to keep
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.cases import (
    CONVERSIONS,
    build_func,
    cases,
    columns,
    is_ordinary,
    result_type,
    signatures,
    zeros_for,
)
from tests.ops.launch import lacks_of, launch, store_truths_as_words
from tests.ops.precision import is_near
from tests.unit.test_spirv_rows import EXPANDED
from vkchi.device import Device
from vkchi.ir.interp import evaluate
from vkchi.opt.lowering.legalize import legalize
from vkchi.opt.math import quotient
from vkchi.types import Scalar, f64, scalar_of

Types = tuple[Scalar, ...]
SIGNATURES = [
    (k, ts) for k, ts in signatures() if (k, ts[0].name) not in EXPANDED or k in quotient.FUNCTIONS
]
AS_IT_IS = frozenset({"min", "max", "select", "neg", "abs", "sign", *CONVERSIONS})

# (part of the device's name, op) -> inputs that this driver gets wrong.
DRIVER_BUGS: dict[tuple[str, str], Any] = {
    # -0, and values flushed to it, as if below 0
    ("SwiftShader", "atan2"): lambda y, x: np.signbit(y) & (np.abs(y) < np.finfo(y.dtype).tiny),
}


def name_of(value: Any) -> str:
    return value if isinstance(value, str) else "-".join(map(str, value))


def mean(kind: str, types: Types, inputs: list[tuple[Any, ...]]) -> Any:
    """The row's meaning, case by case; of rounded functions, in double precision."""
    t = scalar_of(result_type(kind, types))
    is_wide = t.kind == "f" and t.bits < 64 and kind not in AS_IT_IS
    if is_wide:
        t, inputs = f64, [tuple(np.float64(x) for x in v) for v in inputs]
    with np.errstate(all="ignore"):
        return np.array([evaluate(kind, v, None, t) for v in inputs], t.dtype)


def flush(v: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with subnormals as zeros of their sign."""
    return tuple(
        np.copysign(x.dtype.type(0), x)
        if x.dtype.kind == "f" and 0 < abs(x) < np.finfo(x.dtype).tiny
        else x
        for x in v
    )


def judge(kind: str, types: Types, inputs: list[tuple[Any, ...]], got: Any) -> Any:
    """Bool array: results that are allowed."""
    t = scalar_of(result_type(kind, types))
    good = np.zeros(len(inputs), np.bool_)
    for variant in (inputs, [flush(v) for v in inputs] if kind != "bitcast" else inputs):
        want = mean(kind, types, variant)
        if t.kind == "f":
            good |= is_near(kind, t, columns(variant, types), got, want)
        else:
            good |= got == want
    return good


@pytest.mark.parametrize(("kind", "types"), SIGNATURES, ids=name_of)
def test_elementwise_row_matches_reference(device: Device, kind: str, types: Types) -> None:
    keeps_special = device.caps.signed_zero_inf_nan_f32
    inputs = cases(kind, types)
    fn = build_func(kind, types)
    store_truths_as_words(fn, device.caps)
    lacks = lacks_of(fn, device.caps)
    if lacks:
        pytest.skip(f"{device.info.name} has no {', '.join(lacks)}")
    if (kind, types[0].name) in EXPANDED:
        fn = legalize(fn, device.caps)
    out = zeros_for(fn, len(inputs))
    launch(device, fn, {**dict(zip("abc", columns(inputs, types))), "out": out}, count=len(inputs))
    good = judge(kind, types, inputs, out)
    if not keeps_special:
        good |= ~np.array([all(map(is_ordinary, v)) for v in inputs])
    for (name, op), is_known in DRIVER_BUGS.items():
        if op == kind and name in device.info.name:
            good |= is_known(*columns(inputs, types))
    wrong = np.flatnonzero(~good)
    if wrong.size:
        k = wrong[0]
        want = mean(kind, types, inputs)[k]
        pytest.fail(f"{wrong.size} of {len(inputs)}: {inputs[k]} gives {out[k]!r}, not {want!r}")


@pytest.mark.parametrize("shape", [(3,), (2, 2), (3, 3)], ids=str)
@pytest.mark.parametrize("name", ["i32", "f32"])
@pytest.mark.parametrize("kind", ["add", "mod", "min", "lt"])
def test_elementwise_row_on_tensors(
    device: Device, kind: str, name: str, shape: tuple[int, ...]
) -> None:
    t = {"i32": np.int32, "f32": np.float32}[name]
    types = tuple(ts for k, ts in SIGNATURES if k == kind and ts[0].name == name)[0]
    fn = build_func(kind, types, shape)
    store_truths_as_words(fn, device.caps)
    rng = np.random.default_rng(1)
    a = rng.integers(-100, 100, (70, *shape)).astype(t)
    b = rng.integers(1, 9, (70, *shape)).astype(t)
    if (kind, name) in EXPANDED:
        fn = legalize(fn, device.caps)
    out = zeros_for(fn, 70)
    launch(device, fn, {"a": a, "b": b, "out": out}, count=70)
    inputs = list(zip(a.reshape(-1), b.reshape(-1)))
    good = judge(kind, types, inputs, out.reshape(-1))
    assert good.all()
