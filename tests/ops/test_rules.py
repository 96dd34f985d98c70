"""The derivative rule of every op against central differences, in f64, in the interpreter: both
modes; straight, in a chain that a loop carries, in a branch, and of a variable that changes.

The conventions at kinks are those that `rules.py` states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.unit.differentiate import backward
from vkchi.autodiff.forward import differentiate_forward
from vkchi.autodiff.results import GradientRequest
from vkchi.autodiff.reverse import differentiate_reverse
from vkchi.autodiff.rules import NONDIFF, RULES, Bilinear, Linear, Partials
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, Value
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.pipeline import PASSES
from vkchi.types import Array, Tensor, Type, f64, i32, shape_of

V, M, MT = Tensor.of(f64, (3,)), Tensor.of(f64, (2, 3)), Tensor.of(f64, (3, 2))
N = 4  # elements of every array
STEP = 1e-6


class Case(NamedTuple):
    """An op on operands of these types, which are given, or made from the given ones by `make`."""

    kind: str
    types: tuple[Type, ...]
    attr: Any = None
    type: Type | None = None  # of the result, where the op does not say
    make: Callable[[Builder, list[Value]], list[Value]] | None = None

    @property
    def name(self) -> str:
        """For the test's title."""
        return f"{self.kind}-{'-'.join(map(str, self.types))}"


DOMAINS = {  # intervals of operands; others: -1.9 to 1.9, but not near whole numbers
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "pow"), (0.5, 2.0)),
    **dict.fromkeys(("asin", "acos"), (-0.7, 0.7)),
    "tan": (-1.0, 1.0),
    "div": (0.4, 1.9),
    "mod": (0.4, 1.9),
    "rem": (0.4, 1.9),
}
UNDEFINED = "undefined_slope"  # NaN, which no differences tell
SMOOTH = {k: len(r.partials) for k, r in RULES.items() if type(r) is Partials and k != UNDEFINED}
ARGUMENTS = {"atan2": 2, **SMOOTH}
FLAT = ("floor", "ceil", "round", "trunc", "sign")  # NONDIFF, because their slope is zero


def place(b: Builder, values: list[Value]) -> list[Value]:
    """Behind the values: a place in a tensor, known when it runs."""
    return [*values, b.const(1, i32)]


def less(b: Builder, values: list[Value]) -> list[Value]:
    """Before the values: which is less."""
    return [b.emit("lt", *values), *values]


CASES = [
    *[Case(kind, (t,) * n) for kind, n in ARGUMENTS.items() for t in (f64, V, M)],
    *[Case(kind, (t,)) for kind in FLAT for t in (f64, V)],
    Case("select", (f64, f64), make=less),
    Case("select", (M, M), make=less),
    Case("cast", (f64,), type=f64),
    Case("cast", (V,), type=V),
    Case("splat", (f64,), type=M),
    Case("pack", (f64, f64, f64), type=V),
    Case("extract", (V,), attr=1),
    Case("extract", (M,), attr=4),
    Case("extract_at", (M,), make=place),
    Case("insert", (V, f64), attr=2),
    Case("insert", (M, f64), attr=3),
    Case("insert_at", (V, f64), make=place),
    Case("transpose", (M,)),
    Case("sum", (V,)),
    Case("sum", (M,)),
    Case("matmul", (M, V)),
    Case("matmul", (M, MT)),
    Case("outer", (V, V)),
]


def test_every_smooth_row_has_a_case() -> None:
    smooth = {k for k, rule in RULES.items() if isinstance(rule, Partials | Linear | Bilinear)}
    assert smooth - {UNDEFINED} <= {case.kind for case in CASES}
    assert all(RULES[kind] is NONDIFF for kind in FLAT)


# --- programs around an op -----------------------------------------------------------------------


class Maker:
    """Builds a Func over arrays x0, x1, … of operands and y of results."""

    def __init__(self, case: Case) -> None:
        self.case, self.b = case, Builder()
        self.inputs = [Param(Array.of(t, 1), f"x{k}") for k, t in enumerate(case.types)]
        self.result = Param(Array.of(f64, 1), "y")
        self.index = Param(i32, "i")

    def build(self, form: str) -> Func:
        """The Func in which the op stands as `form` says."""
        b = self.b
        with b.region() as body:
            with b.region(self.index) as inner:
                values = [self.load(x) for x in self.inputs]
                b.emit("store", b.emit("elem", self.result, self.index), FORMS[form](self, values))
                b.emit("yield")
            b.parallel((b.const(0, i32), b.const(N, i32)), inner)
            b.emit("yield")
        fn = Func("f", (*self.inputs, self.result), body)
        verify(fn)
        return fn

    def load(self, x: Param) -> Value:
        return self.b.emit("load", self.b.emit("elem", x, self.index))

    def apply(self, values: list[Value]) -> Value:
        """The op, and the weighted sum of its components."""
        b, case = self.b, self.case
        args = case.make(b, values) if case.make else values
        v = b.emit(case.kind, *args, attr=case.attr, type=case.type)
        if not isinstance(v.type, Tensor):
            return v
        weights = [0.5 + 0.3 * k for k in range(v.type.size)]
        parts = [b.const(w, f64) for w in weights]
        return b.emit("sum", b.emit("mul", v, b.emit("pack", *parts, type=v.type)))

    def moved(self, v: Value, by: Value) -> Value:
        """v, with a tenth of a number added to all components."""
        b = self.b
        shift = b.emit("mul", by, b.const(0.1, f64))
        if isinstance(v.type, Tensor):
            shift = b.emit("splat", shift, type=v.type)
        return b.emit("add", v, shift)

    def straight(self, values: list[Value]) -> Value:
        """By itself."""
        return self.apply(values)

    def in_chain(self, values: list[Value]) -> Value:
        """In a loop that carries the result."""
        b, state = self.b, Param(f64, "s")
        with b.region(Param(i32, "j"), state) as body:
            v = self.apply([self.moved(x, state) for x in values])
            b.emit("yield", b.emit("sin", v))
        first = b.const(0.3, f64)
        return b.for_(b.const(0, i32), b.const(3, i32), [first], body).results[0]

    def in_branch(self, values: list[Value]) -> Value:
        """In one arm of an `if`."""
        b = self.b
        with b.region() as then:
            b.emit("yield", self.apply(values))
        with b.region() as other:
            b.emit("yield", b.const(2.0, f64))
        cond = b.emit("lt", self.index, b.const(2, i32))
        return b.if_(cond, then, other).results[0]

    def after_change(self, values: list[Value]) -> Value:
        """On variables that are changed before and after."""
        b = self.b
        places = [b.emit("local", v) for v in values]
        for p in places:
            v = b.emit("load", p)
            b.emit("store", p, self.moved(v, b.emit("sin", self.number(v))))
        found = self.apply([b.emit("load", p) for p in places])
        for p, v in zip(places, values, strict=True):
            b.emit("store", p, b.emit("add", v, b.emit("load", p)))
        return b.emit("mul", found, self.number(b.emit("load", places[0])))

    def number(self, v: Value) -> Value:
        """The sum of components."""
        return self.b.emit("sum", v) if isinstance(v.type, Tensor) else v


FORMS = {
    "straight": Maker.straight,
    "chain": Maker.in_chain,
    "branch": Maker.in_branch,
    "change": Maker.after_change,
}


# --- comparing -----------------------------------------------------------------------------------


def draw(case: Case) -> dict[str, Any]:
    """Operands."""
    r = np.random.default_rng(len(case.kind))
    found = {}
    for k, t in enumerate(case.types):
        shape = (N, *shape_of(t))
        if case.kind in DOMAINS:
            found[f"x{k}"] = r.uniform(*DOMAINS[case.kind], shape)
        else:
            found[f"x{k}"] = r.choice([-1.0, 0.0, 1.0], shape) + r.uniform(0.3, 0.7, shape)
    return found | {"y": np.zeros(N)}


def slopes(fn: Func, args: dict[str, Any], along: dict[str, Any]) -> Any:
    """Change of y along a direction, by central differences."""

    def value(sign: float) -> Any:
        moved = {k: v + sign * STEP * along[k] for k, v in args.items()}
        run_reference(fn, moved)
        return moved["y"]

    return (value(1) - value(-1)) / (2 * STEP)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_derivative_rule_matches_differences(case: Case, form: str) -> None:
    fn, args = Maker(case).build(form), draw(case)
    r = np.random.default_rng(3)
    along = {k: r.normal(size=v.shape) for k, v in args.items()}
    want = slopes(fn, args, along)

    dual = differentiate_forward(fn, frozenset(args))
    verify(dual)
    duals = {f"{k}..dual": v.copy() for k, v in along.items()}
    run_reference(dual, {**{k: v.copy() for k, v in args.items()}, **duals})
    np.testing.assert_allclose(duals["y..dual"], want, 1e-6, 1e-7)

    made = differentiate_reverse(fn, GradientRequest(frozenset(args)))
    verify(made.func)
    made = made._replace(func=PASSES["unread"](made.func))  # type: ignore[arg-type]
    seed = r.normal(size=N)
    found = backward(made, args, {"y": seed})
    product = sum(np.sum(found[k] * along[k]) for k in args if k in found and k != "y")
    np.testing.assert_allclose(product, np.sum(seed * want), 1e-6, 1e-7)


# --- conventions ---------------------------------------------------------------------------------

KINKS: list[tuple[str, tuple[float, ...], tuple[float, ...]]] = [
    ("abs", (0.0,), (0.0,)),
    ("min", (1.5, 1.5), (0.0, 1.0)),
    ("max", (1.5, 1.5), (0.0, 1.0)),
    ("min", (1.0, 2.0), (1.0, 0.0)),
    ("max", (1.0, 2.0), (0.0, 1.0)),
    ("pow", (0.0, 0.0), (0.0, 0.0)),
    ("pow", (0.0, 1.0), (1.0, 0.0)),
    ("pow", (0.0, 2.0), (0.0, 0.0)),
    ("pow", (2.0, 0.0), (0.0, np.log(2))),
    ("sign", (0.0,), (0.0,)),
    ("sqrt", (0.0,), (np.inf,)),
    (UNDEFINED, (2.0,), (np.nan,)),
]


@pytest.mark.parametrize(("kind", "inputs", "gradient"), KINKS)
def test_convention_at_kink(kind: str, inputs: tuple[float, ...], gradient: Any) -> None:
    fn = Maker(Case(kind, (f64,) * len(inputs))).build("straight")
    args: dict[str, Any] = {f"x{k}": np.full(N, v) for k, v in enumerate(inputs)}
    args["y"] = np.zeros(N)
    with np.errstate(all="ignore"):
        found = backward(
            differentiate_reverse(fn, GradientRequest(frozenset(args))), args, {"y": np.ones(N)}
        )
    for k, want in enumerate(gradient):
        np.testing.assert_allclose(found.get(f"x{k}", np.zeros(N)), want)


@pytest.mark.parametrize(
    "kind", [UNDEFINED, "sqrt", "rsqrt", "log", "log2", "asin", "div", "atan2"]
)
def test_infinite_slope_times_nothing_is_nothing(kind: str) -> None:
    """`select(c, f(x), 0)` where the slope of f is infinite and c is false."""
    count = ARGUMENTS.get(kind, 1)
    fn = Maker(Case(kind, (f64,) * count)).build("straight")
    args = {f"x{k}": np.full(N, 1.0 if kind == "asin" else 0.0) for k in range(count)}
    args["y"] = np.zeros(N)
    with np.errstate(all="ignore"):
        found = backward(
            differentiate_reverse(fn, GradientRequest(frozenset(args))), args, {"y": np.zeros(N)}
        )
    for k in range(count):
        np.testing.assert_array_equal(found[f"x{k}"], 0)
