"""Largest errors of f32 functions on the current device, in units in the last place.

    python benchmarks/accuracy.py

Each function is called on 200,000 values of an interval, and compared with numpy's f64. Prints the
rows of the table in docs/numbers.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import vkchi as ti
from vkchi.runtime import current_runtime

COUNT = 200_000
# Function of kernels and of numpy, and the interval of its argument.
FUNCTIONS: dict[str, tuple[Any, Any, float, float]] = {
    "1 / x": (None, lambda x: 1 / x, 1e-6, 1e6),
    "sqrt": (ti.sqrt, np.sqrt, 1e-6, 1e6),
    "rsqrt": (ti.rsqrt, lambda x: 1 / np.sqrt(x), 1e-6, 1e6),
    "sin": (ti.sin, np.sin, -3.14, 3.14),
    "cos": (ti.cos, np.cos, -3.14, 3.14),
    "sin (to 1000)": (ti.sin, np.sin, -1e3, 1e3),
    "tan": (ti.tan, np.tan, -1.5, 1.5),
    "asin": (ti.asin, np.arcsin, -1, 1),
    "acos": (ti.acos, np.arccos, -1, 1),
    "atan": (ti.math.atan, np.arctan, -1e3, 1e3),
    "atan2(x, 1)": (None, np.arctan, -1e3, 1e3),
    "exp": (ti.exp, np.exp, -80, 80),
    "exp2": (ti.math.exp2, np.exp2, -115, 115),
    "log": (ti.log, np.log, 1e-6, 1e6),
    "log2": (ti.math.log2, np.log2, 1e-6, 1e6),
    "sinh": (ti.math.sinh, np.sinh, -80, 80),
    "cosh": (ti.math.cosh, np.cosh, -80, 80),
    "tanh": (ti.tanh, np.tanh, -10, 10),
    "x ** 2.5": (None, lambda x: x**2.5, 1e-6, 1e6),
    "x ** 3": (None, lambda x: x**3, -1e6, 1e6),
    "x // 0.7": (None, lambda x: x // np.float64(np.float32(0.7)), -1e5, 1e5),
}


def values(low: float, high: float) -> np.ndarray[Any, Any]:
    """Values from low to high, by magnitude if both are positive."""
    space = np.geomspace if low > 0 else np.linspace
    return space(low, high, COUNT).astype(np.float32)


def error_of(name: str) -> tuple[float, float]:
    """Largest error in units in the last place, and largest absolute error."""
    function, exact, low, high = FUNCTIONS[name]
    x = values(low, high)
    result = np.zeros_like(x)

    @ti.kernel
    def run(x: ti.types.ndarray(ndim=1), result: ti.types.ndarray(ndim=1)):
        for i in x:
            result[i] = call(x[i])

    call = CALLS.get(name, function)
    run(x, result)
    right = exact(x.astype(np.float64))
    difference = np.abs(result.astype(np.float64) - right)
    unit = np.spacing(np.maximum(np.abs(right), 1.2e-38).astype(np.float32)).astype(np.float64)
    return float((difference / unit).max()), float(difference.max())


@ti.func
def inverse(x):
    return 1 / x


@ti.func
def angle(x):
    return ti.atan2(x, 1.0)


@ti.func
def power(x):
    return ti.pow(x, 2.5)


@ti.func
def cube(x):
    return x**3


@ti.func
def quotient(x):
    return x // 0.7


CALLS = {"1 / x": inverse, "atan2(x, 1)": angle, "x ** 2.5": power, "x ** 3": cube,
         "x // 0.7": quotient}  # fmt: skip


def main() -> None:
    ti.init()
    print(f"device: {current_runtime().device.name}")
    for name in FUNCTIONS:
        ulps, difference = error_of(name)
        print(f"{name:16} {ulps:12.3g} ulp {difference:12.3g}")


if __name__ == "__main__":
    main()
