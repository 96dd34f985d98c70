"""Gradients of random kernels agree between device, interpreter and finite differences.

Differences need f64. Points near kinks, where two steps give different derivatives, are not
compared with them.

`VKCHI_FUZZ=n` runs n batches in place of BATCHES. To see the program of a seed:

    python -c "from tests.fuzz.smooth import *; print(write_kernel(SEED))"
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz.smooth import NUMBERS, VECTORS, N, write_kernel
from tests.unit.differentiate import backward
from vkchi.autodiff.gradient_checks import check_repeatable
from vkchi.autodiff.results import GradientRequest
from vkchi.autodiff.reverse import GradientFunc, differentiate_reverse
from vkchi.calls.gradients import simplify_for_gradient
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.lowering import lower_kernel
from vkchi.ir.core import Func
from vkchi.ir.interp import run_reference
from vkchi.ir.ops import TABLE, OpRow
from vkchi.opt.pipeline import PASSES
from vkchi.runtime import current_runtime
from vkchi.types import i32

Arrays = dict[str, Any]
BATCHES = int(os.environ.get("VKCHI_FUZZ", "10"))
PROGRAMS = 10  # in a batch
NOISE = 2e-4  # the error of SwiftShader's sine in f32
FLOATS = (*NUMBERS, *VECTORS, "loss")
TRIPS = 3  # the kernels' argument
STEP = 1e-5


@pytest.fixture(scope="module")
def fields() -> Iterator[dict[str, Any]]:
    """Fields of the kernels, in f64 where the device has it, and the kernel `add_up`."""
    ti.init(random_seed=7)
    has_f64 = current_runtime().device.caps.has_type(
        "f64"
    ) and current_runtime().device.caps.can_store("f64")
    t = ti.f64 if has_f64 else ti.f32
    ti.init(random_seed=7, default_fp=t)
    made: dict[str, Any] = {name: ti.field(t, N, needs_grad=True) for name in NUMBERS}
    made |= {name: ti.Vector.field(2, t, N, needs_grad=True) for name in VECTORS}
    made["loss"] = ti.field(t, (), needs_grad=True)
    made |= {f"{name}_weight": like(made[name], t) for name in FLOATS}
    made["total"] = ti.field(t, (), needs_grad=True)
    made["add_up"] = make_sum(made)
    made |= {name: ti.field(ti.i32, N) for name in ("perm", "count")}
    yield made
    ti.reset()  # others want f32


def like(x: Any, t: Any) -> Any:
    return ti.Vector.field(2, t, x.shape) if isinstance(x, ti.MatrixField) else ti.field(t, x.shape)


def define(seed: int, fields: dict[str, Any]) -> Any:
    """The kernel of a seed, compiled with these fields."""
    text, file = write_kernel(seed), f"<gradient {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"ti": ti, **fields}
    exec(compile(text, file, "exec"), names)
    return names["run"]


def lower(kernel: Any, fields: dict[str, Any]) -> tuple[Func, dict[str, str]]:
    """The kernel's Func, simplified for gradients, and the field name of each parameter."""
    spec = (ArgSpec("c", "scalar", i32),)
    lowered = lower_kernel(kernel.__vkchi_func__, spec, current_runtime().options)
    names = {id(field): name for name, field in fields.items()}
    found = {k: names[id(b[1])] for k, b in lowered.bindings.items() if b[0] == "field"}
    return simplify_for_gradient(
        lowered.func, frozenset(p for p, k in found.items() if k in FLOATS)
    ), found


class Point:
    """Random contents of all fields, adjoints of the fields of floats, and a direction."""

    def __init__(self, seed: int, fields: dict[str, Any]) -> None:
        r = np.random.default_rng(seed)
        self.contents = {k: r.uniform(0.2, 1.4, fields[k].to_numpy().shape) for k in FLOATS}
        self.contents = {k: v.astype(fields[k].to_numpy().dtype) for k, v in self.contents.items()}
        self.contents["perm"] = np.array([2, 0, 1], np.int32)
        self.contents["count"] = np.array([0, 2, 1], np.int32)
        self.seeds = {k: r.normal(size=self.contents[k].shape) for k in FLOATS}
        self.along = {k: r.normal(size=self.contents[k].shape) for k in FLOATS}

    def args(self, names: dict[str, str], moved: float = 0.0) -> Arrays:
        """The contents by parameter, with floats moved by `moved` along the direction."""
        found = {p: np.array(self.contents[k]) for p, k in names.items()}
        for p, k in names.items():
            if k in FLOATS:
                found[p] += moved * self.along[k]
        return found

    def value(self, fn: Func, names: dict[str, str], moved: float) -> float:
        """The sum of all results of the Func times their adjoints."""
        args = {**self.args(names, moved), "c": np.int32(TRIPS)}
        run_reference(fn, args)
        return sum(float(np.sum(self.seeds[k] * args[p])) for p, k in names.items()
                   if k in FLOATS)  # fmt: skip

    def slope(self, fn: Func, names: dict[str, str]) -> float | None:
        """The derivative of `value` along the direction by differences; None if not reliable.

        Not reliable: two steps disagree (a kink), or the derivative times the step reaches 1.
        """
        found = [
            (self.value(fn, names, h) - self.value(fn, names, -h)) / (2 * h)
            for h in (STEP, STEP / 3)
        ]
        is_told = np.isclose(*found, rtol=1e-5, atol=1e-6) and abs(found[1]) * STEP < 1
        return found[1] if is_told else None


def interpret(made: GradientFunc, point: Point, names: dict[str, str]) -> Arrays:
    """Gradients by field that the interpreter computes of the weighted sum of all results."""
    args = {**point.args(names), "c": np.int32(TRIPS)}
    seeds = {p: point.seeds[k].astype(args[p].dtype) for p, k in names.items() if k in point.seeds}
    found = backward(made, args, seeds)
    return {names[p]: v for p, v in found.items()}


def run_device(kernel: Any, point: Point, fields: dict[str, Any]) -> Arrays:
    """Gradients by field that the device computes of the weighted sum of all results."""
    for name, values in point.contents.items():
        fields[name].from_numpy(values)
    for name, values in point.seeds.items():
        fields[f"{name}_weight"].from_numpy(values.astype(point.contents[name].dtype))
    with ti.ad.Tape(fields["total"]):
        kernel(TRIPS)
        fields["add_up"]()
    return {name: fields[name].grad.to_numpy() for name in FLOATS}


def make_sum(fields: dict[str, Any]) -> Any:
    """A kernel that adds all elements times their weights to `total`."""
    scalars = [(fields[k], fields[f"{k}_weight"]) for k in (*NUMBERS, "loss")]
    vectors = [(fields[k], fields[f"{k}_weight"]) for k in VECTORS]
    total = fields["total"]

    @ti.kernel
    def add_up():
        for x, w in ti.static(scalars):
            for I in ti.grouped(x):
                total[None] += x[I] * w[I]
        for x, w in ti.static(vectors):
            for I in ti.grouped(x):
                total[None] += x[I].dot(w[I])

    return add_up


@pytest.mark.parametrize("batch", range(BATCHES))
def test_device_gradients_match_interpreter(batch: int, fields: dict[str, Any]) -> None:
    for seed in range(batch * PROGRAMS, (batch + 1) * PROGRAMS):
        kernel, point = define(seed, fields), Point(seed, fields)
        fn, names = lower(kernel, fields)
        made = differentiate_reverse(
            fn, GradientRequest(frozenset(p for p, k in names.items() if k in FLOATS))
        )
        made = made._replace(func=PASSES["unread"](made.func))  # type: ignore[arg-type]
        check_repeatable(made.func)
        found = interpret(made, point, names)
        check_slope(seed, point, fn, names, found)
        allowed = tolerances(made, point, names, found)
        check_device(seed, run_device(kernel, point, fields), found, point, allowed)


def check_slope(seed: int, point: Point, fn: Func, names: dict[str, str], found: Arrays) -> None:
    """Assert that the gradients agree with differences along the direction, in f64 only."""
    slope = point.slope(fn, names) if point.contents["x"].dtype == np.float64 else None
    if slope is not None:
        product = sum(float(np.sum(found.get(k, point.seeds[k]) * point.along[k]))
                      for k in names.values() if k in FLOATS)  # fmt: skip
        assert np.isclose(product, slope, rtol=1e-4, atol=1e-5), f"seed {seed}: {product} {slope}"


def tolerances(made: GradientFunc, point: Point, names: dict[str, str], found: Arrays) -> Arrays:
    """Absolute tolerances of the device's gradients, by field.

    In f32: three times the effect of errors in sines and cosines, which programs may magnify, and
    at least 0.002.
    """
    if point.contents["x"].dtype == np.float64:
        return {k: 1e-8 for k in FLOATS}
    off = {k: np.float64(2e-3) for k in FLOATS}
    for attempt in range(3):
        with noisy_sines(attempt):
            shaken = interpret(made, point, names)
        for k in shaken.keys() & set(FLOATS):
            off[k] = np.maximum(off[k], 3 * np.abs(shaken[k] - found[k]))
    return off


@contextmanager
def noisy_sines(attempt: int) -> Iterator[None]:
    """Add an error of up to NOISE to the interpreter's sines and cosines."""
    exact = {kind: TABLE[kind] for kind in ("sin", "cos")}

    def shake(row: OpRow) -> OpRow:
        assert row.numpy is not None
        fn = row.numpy
        return row._replace(
            numpy=lambda x: (fn(x) + NOISE * np.sin(999 * x + attempt)).astype(x.dtype)
        )

    TABLE.update({kind: shake(row) for kind, row in exact.items()})
    try:
        yield
    finally:
        TABLE.update(exact)


def check_device(seed: int, got: Arrays, found: Arrays, point: Point, allowed: Arrays) -> None:
    """Assert that the device's gradients `got` agree with `found` within the tolerances."""
    relative = 1e-8 if point.contents["x"].dtype == np.float64 else 2e-3
    for name in FLOATS:
        want = found.get(name, point.seeds[name])
        is_near = np.abs(got[name] - want) <= allowed[name] + relative * np.abs(want)
        assert np.all(is_near), f"seed {seed}: {name}: {got[name]} {want}"
