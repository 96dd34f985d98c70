"""Sums whose terms an iteration computes once for many: their values are passed on in an array, and
the sums get loops of their own. Gradients of layers, convolutions and norms, held against numpy,
exactly for small whole numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti

ROWS, INNER, COLUMNS = 40, 70, 90
Arrays = dict[str, np.ndarray[Any, Any]]


def field(*shape: int) -> Any:
    return ti.field(ti.f32, shape, needs_grad=True)


def fill(fields: dict[str, Any], out: str) -> Arrays:
    """Small whole numbers for each, and gradients of the results."""
    rng = np.random.default_rng(5)
    given = {k: rng.integers(-2, 3, f.shape).astype(np.float32) for k, f in fields.items()}
    for name, values in given.items():
        fields[name].from_numpy(values)
    fields[out].grad.from_numpy(given[out])
    return given


@pytest.mark.parametrize("form", ["max", "if"])
def test_dense_layer_gradient(form: str) -> None:
    x, w, b, y = field(ROWS, INNER), field(INNER, COLUMNS), field(COLUMNS), field(ROWS, COLUMNS)

    @ti.kernel
    def by_max():
        for i, j in y:
            s = b[j] + 0.5
            for k in range(INNER):
                s += x[i, k] * w[k, j]
            y[i, j] = ti.max(s, 0)

    @ti.kernel
    def by_if():
        for i, j in y:
            s = b[j] + 0.5
            for k in range(INNER):
                s += x[i, k] * w[k, j]
            if s > 0:
                y[i, j] = s
            else:
                y[i, j] = 0

    given = fill({"x": x, "w": w, "b": b, "y": y}, "y")
    (by_max if form == "max" else by_if).grad()
    sums = given["x"] @ given["w"] + given["b"] + 0.5
    g = given["y"] * (sums > 0)
    np.testing.assert_array_equal(x.grad.to_numpy(), g @ given["w"].T)
    np.testing.assert_array_equal(w.grad.to_numpy(), given["x"].T @ g)
    np.testing.assert_array_equal(b.grad.to_numpy(), g.sum(0))
    np.testing.assert_array_equal(y.grad.to_numpy(), 0)


def test_convolution_gradient() -> None:
    n, size = 120, 3
    x, w, y = field(n + 2, n + 2), field(size, size), field(n, n)

    @ti.kernel
    def convolve():
        for i, j in y:
            s = 0.5
            for p, q in ti.static(ti.ndrange(size, size)):
                s += x[i + p, j + q] * w[p, q]
            y[i, j] = ti.max(s, 0)

    given = fill({"x": x, "w": w, "y": y}, "y")
    convolve.grad()
    windows = np.lib.stride_tricks.sliding_window_view(given["x"], (size, size))
    g = given["y"] * ((windows * given["w"]).sum((2, 3)) + 0.5 > 0)
    want = np.zeros_like(given["x"])
    for p, q in np.ndindex(size, size):
        want[p : p + n, q : q + n] += g * given["w"][p, q]
    np.testing.assert_array_equal(x.grad.to_numpy(), want)
    np.testing.assert_array_equal(w.grad.to_numpy(), (windows * g[:, :, None, None]).sum((0, 1)))


def test_norm_gradient() -> None:
    rows, columns = 300, 64
    x, a, b, y = field(rows, columns), field(columns), field(columns), field(rows, columns)

    @ti.kernel
    def centred():
        for i in range(rows):
            s = 0.0
            for j in range(columns):
                s += x[i, j]
            mean = s / columns
            for j in range(columns):
                y[i, j] = (x[i, j] - mean) * a[j] + b[j]

    given = fill({"x": x, "a": a, "b": b, "y": y}, "y")
    centred.grad()
    middle = given["x"] - given["x"].mean(1, keepdims=True)
    slope = given["y"] * given["a"]
    np.testing.assert_array_equal(a.grad.to_numpy(), (middle * given["y"]).sum(0))
    np.testing.assert_array_equal(b.grad.to_numpy(), given["y"].sum(0))
    np.testing.assert_array_equal(x.grad.to_numpy(), slope - slope.mean(1, keepdims=True))


def test_saved_module_has_expansion_storage(tmp_path: Path) -> None:
    """A module has room for the stored values."""
    n = 512
    total, v, w = ti.field(ti.f32, n), ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n))

    @ti.kernel
    def spread():
        for i in range(n):
            s = 0.0
            for j in range(n):
                s += v[i, j]
            for j in range(n):
                total[j] += s * w[i, j]

    rng = np.random.default_rng(5)
    some, others = rng.integers(-2, 3, (2, n, n)).astype(np.float32)
    module = ti.aot.Module()
    for name, f in (("total", total), ("v", v), ("w", w)):
        module.add_field(name, f)
    module.add_kernel(spread)
    module.save(tmp_path)
    loaded = ti.load(tmp_path)
    loaded.fields["v"].from_numpy(some)
    loaded.fields["w"].from_numpy(others)
    loaded.spread()
    want = (some.sum(1)[:, None] * others).sum(0)
    np.testing.assert_array_equal(loaded.fields["total"].to_numpy(), want)
    lines = [line for path in tmp_path.glob("*") for line in texts(path)]
    assert f"memory .temp.0 {4 * (n + 1)}" in lines


def texts(path: Path) -> list[str]:
    """The lines of a file, if it is text."""
    return path.read_text(errors="replace").splitlines() if path.is_file() else []
