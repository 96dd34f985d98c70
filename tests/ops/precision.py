"""Maximum error of a device's result, by the Vulkan specification.

Source: Vulkan 1.3, appendix A, "Precision and Operation of SPIR-V Instructions". Each row gives the
allowed absolute error from the type, the exact arguments and the exact result, all as float64; inf
means "undefined". f64 need only be as precise as f32; operations without a row are exact.
`allowed_error` adds one ULP for the rounding mode, and subnormals may be flushed to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vkchi.ir.ops import Trait, kinds_with
from vkchi.types import Scalar, f16, f32

Row = Callable[..., Any]


class Format:
    """Precision that is required of a float type: that of f16, or of f32 for wider ones."""

    def __init__(self, t: Scalar) -> None:
        info = np.finfo(t.dtype if t is f16 else f32.dtype)
        self.is_half = t is f16
        self.digits, self.tiny = info.nmant, float(info.tiny)
        self.max = float(np.finfo(t.dtype).max)

    def ulp(self, x: Any) -> Any:
        """The unit in the last place of x, at least that of the least normal number."""
        magnitude = np.maximum(np.abs(x), self.tiny)
        return np.exp2(np.floor(np.log2(magnitude)) - self.digits)

    def log_error(self, x: Any, result: Any) -> Any:
        """Absolute error of log and log2: 3 ULP outside [0.5, 2], a constant inside.

        Infinite for subnormals, which may be flushed.
        """
        is_near = (x >= 0.5) & (x <= 2)
        error = np.where(is_near, 2.0 ** (-7 if self.is_half else -21), 3 * self.ulp(result))
        return np.where((x > 0) & (x < self.tiny), np.inf, error)

    def exp_ulps(self, x: Any) -> Any:
        """exp and exp2: 3 + 2|x| ULP; 1 + 2|x| for half precision."""
        return (1 if self.is_half else 3) + 2 * np.abs(x)

    @property
    def sine(self) -> float:
        """Absolute error of sin and cos in [-pi, pi]."""
        return 2.0 ** (-7 if self.is_half else -11)

    @property
    def arc(self) -> float:
        """atan and atan2, in ULP."""
        return 5.0 if self.is_half else 4096.0


def _exp(f: Format, x: Any, r: Any) -> Any:
    return f.exp_ulps(x) * f.ulp(r)


def _pow(f: Format, x: Any, y: Any, r: Any) -> Any:
    """exp2(y * log2(x))."""
    log = np.log2(np.abs(x))
    power = y * log
    moved = np.abs(y) * f.log_error(np.abs(x), log) + f.ulp(power)
    error = f.exp_ulps(power) * f.ulp(r) + np.abs(r) * np.expm1(moved)
    return np.where((x == 0) & (y <= 0), np.inf, error)


def _div(f: Format, a: Any, b: Any, r: Any) -> Any:
    limit = 14 if f.is_half else 126
    is_in_range = (np.abs(b) >= 2.0**-limit) & (np.abs(b) <= 2.0**limit)
    return np.where(is_in_range, 2.5 * f.ulp(r), np.inf)


def _rsqrt(f: Format, x: Any, r: Any) -> Any:
    return np.where(x > 0, 2 * f.ulp(r), np.inf)


def _sqrt(f: Format, x: Any, r: Any) -> Any:
    """1 / inversesqrt(x)."""
    return np.where(x > 0, 5.5 * f.ulp(r), np.where(x == 0, 0, np.inf))


def _sine(f: Format, x: Any, r: Any) -> Any:
    return np.where(np.abs(x) <= np.pi, f.sine, np.inf)


def _tan(f: Format, x: Any, r: Any) -> Any:
    """sin(x) / cos(x)."""
    cos = np.abs(np.cos(x))
    safe = np.maximum(cos - f.sine, 1e-300)
    error = f.sine * (1 + np.abs(r)) / safe + 2.5 * f.ulp(r)
    return np.where((cos > f.sine) & (np.abs(x) <= np.pi), error, np.inf)


def _arc(f: Format, *args: Any) -> Any:
    return f.arc * f.ulp(args[-1])


def _arc2(f: Format, y: Any, x: Any, r: Any) -> Any:
    """Undefined at the origin."""
    return np.where((x == 0) & (y == 0), np.inf, _arc(f, r))


def _arc_sine(f: Format, x: Any, r: Any) -> Any:
    """As atan2(x, sqrt(1 - x * x)), and similarly for acos."""
    square = np.maximum(1 - x * x, 0)
    root = np.sqrt(square)
    eps = 2 * f.ulp(1.0)
    moved = np.minimum(np.sqrt(eps), eps / np.maximum(root, 1e-300)) + 6 * f.ulp(root)
    return np.where(np.abs(x) <= 1, f.arc * f.ulp(r) + moved, np.inf)


def _hyperbolic(f: Format, x: Any, r: Any) -> Any:
    """As (exp(x) +- exp(-x)) * 0.5, for sinh and cosh."""
    grown = np.exp(np.abs(x))
    error = f.exp_ulps(x) * f.ulp(grown) + f.ulp(grown)
    return np.where(grown < f.max, error, np.inf)


def _tanh(f: Format, x: Any, r: Any) -> Any:
    cosh = np.cosh(x)
    error = 2 * _hyperbolic(f, x, r) / cosh + 2.5 * f.ulp(r)
    return np.where(np.isfinite(error), error, np.inf)


def _floordiv(f: Format, a: Any, b: Any, r: Any) -> Any:
    """Exact if the type holds the quotient exactly, otherwise as for `/`."""
    is_held = (np.abs(r) < 2.0 ** (f.digits + 1)) | (b == 0) | ~np.isfinite(a) | ~np.isfinite(b)
    return np.where(is_held, 0, _div(f, a, b, r))


ROWS: dict[str, Row] = {
    "div": _div, "pow": _pow, "sqrt": _sqrt, "rsqrt": _rsqrt, "exp": _exp, "exp2": _exp,
    "log": lambda f, x, r: np.where(x > 0, f.log_error(x, r), np.inf),
    "log2": lambda f, x, r: np.where(x > 0, f.log_error(x, r), np.inf),
    "sin": _sine, "cos": _sine, "tan": _tan, "asin": _arc_sine, "acos": _arc_sine,
    "atan": _arc, "atan2": _arc2, "sinh": _hyperbolic, "cosh": _hyperbolic, "tanh": _tanh,
    "floordiv": _floordiv,
}  # fmt: skip
FORMULAS = kinds_with(Trait.FORMULA_F64 | Trait.FORMULA_F32) - kinds_with(Trait.ROUNDS)
ROWS.update(dict.fromkeys(FORMULAS - ROWS.keys(), lambda f, *args: 8 * f.ulp(args[-1])))
ROUNDED = frozenset({"add", "sub", "mul", "cast", "mod"}) | frozenset(ROWS)


def allowed_error(kind: str, t: Scalar, args: list[Any], exact: Any) -> Any:
    """The allowed absolute error of results of the op `kind` of float type t, per element."""
    f = Format(t)
    exact64 = exact.astype(np.float64)
    with np.errstate(all="ignore"):
        base = ROWS[kind](f, *[a.astype(np.float64) for a in args], exact64) if kind in ROWS else 0
        if kind not in ROUNDED:
            return np.zeros_like(exact64)
        own = np.finfo(t.dtype)
        last = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact64), own.tiny))) - own.nmant)
        return np.nan_to_num(base + last + own.tiny, nan=np.inf, posinf=np.inf)


def is_near(kind: str, t: Scalar, args: list[Any], got: Any, exact: Any) -> Any:
    """Bool array: results `got` that the specification permits. `exact` may be float64."""
    allowed = allowed_error(kind, t, args, exact)
    top = float(np.finfo(t.dtype).max)
    with np.errstate(all="ignore"):
        exact64, got64 = exact.astype(np.float64), got.astype(np.float64)
        close = np.abs(got64 - exact64) <= allowed
        overflows = (np.abs(exact64) + allowed > top) & (np.abs(got64) >= 0.99 * top)
        overflows &= np.sign(got64) == np.sign(exact64)
        same = (got64 == exact64) | (np.isnan(got64) & np.isnan(exact64))
        flushed = (got64 == 0) & (np.abs(exact64) < np.finfo(t.dtype).tiny)
    return close | overflows | same | flushed | np.isinf(allowed)
