"""Comparison of results in conformance tests: nested lists, floats within a tolerance.

Example:

    check(kernel(), [1, 2.5]); check(field, [[0, 1], [2, 3]])
"""

import math
from typing import Any

import numpy as np

RELATIVE = 1e-4  # of f32 results: some functions are that exact on GPUs


def plain(x: Any) -> Any:
    """Convert fields, arrays, vectors and matrices to nested lists of Python numbers."""
    if hasattr(x, "to_numpy"):
        x = x.to_numpy()
    if isinstance(x, dict):
        return {key: plain(item) for key, item in x.items()}
    if isinstance(x, list | tuple):
        return [plain(item) for item in x]
    return x.tolist() if isinstance(x, np.ndarray | np.generic) else x


def check(got: Any, want: Any, rtol: float = RELATIVE) -> None:
    """Raise AssertionError unless `got`, as nested lists, equals `want`; floats within `rtol`."""
    assert_near(plain(got), want, rtol, plain(got))


def assert_near(got: Any, want: Any, rtol: float, whole: Any) -> None:
    """One level of `check`; `whole` is shown if it fails."""
    if isinstance(want, dict):
        assert isinstance(got, dict) and got.keys() == want.keys(), whole
        got, want = list(got.values()), list(want.values())
    if isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want), whole
        for a, b in zip(got, want):
            assert_near(a, b, rtol, whole)
    elif isinstance(want, float):
        assert is_near(got, want, rtol), whole
    else:
        assert got == want, whole


def is_near(got: float, want: float, rtol: float) -> bool:
    """True if two numbers are equal within a tolerance; NaN equals NaN, infinities themselves."""
    if not math.isfinite(want):
        return got == want or (math.isnan(got) and math.isnan(want))
    return abs(got - want) <= 1e-30 + rtol * abs(want)
