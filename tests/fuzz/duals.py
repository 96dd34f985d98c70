"""Execution of programs of the kernel language as plain Python, on numbers that carry derivatives.

    names = define(text, fields)      # the functions of a program; fields: name -> Memory
    names["drive"]()                  # ... ; fields["loss"][None].slope is the gradient

A reference for values and gradients that shares no code with the compiler. Loops run in order; a
number is a value and its derivatives by all inputs. It supports the constructs of `smooth.py` and
`rows.py`. Raises Kink where a program comes close to a jump or a corner of a function.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

NEAR = 1e-7


class Kink(Exception):
    """A program came close to a jump or a corner, or computed a value that is not finite."""


class Dual:
    """A float and its derivatives by all inputs: an array, or 0.0 for a constant.

    Raises Kink if the float is infinite or NaN.
    """

    def __init__(self, value: float, slope: Any = 0.0) -> None:
        if not math.isfinite(value):
            raise Kink
        self.value, self.slope = value, slope

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __abs__(self) -> Dual:
        return -self if self < 0.0 else self


def lift(x: Any) -> Dual:
    """`x` itself if it is a Dual, else a constant Dual."""
    return x if isinstance(x, Dual) else Dual(float(x))


def power(x: float, y: float) -> tuple[float, float, float]:
    """`x ** y`, its derivative by `x` and its derivative by `y` (0 for `x` of at most 0)."""
    by_exponent = x**y * math.log(x) if x > 0 else 0.0
    return x**y, y * x ** (y - 1), by_exponent


def arctangent(y: float, x: float) -> tuple[float, float, float]:
    """`atan2(y, x)`, its derivative by `y` and its derivative by `x`."""
    return math.atan2(y, x), x / (x * x + y * y), -y / (x * x + y * y)


BINARY: dict[str, Callable[[float, float], tuple[float, float, float]]] = {
    "add": lambda x, y: (x + y, 1, 1),
    "sub": lambda x, y: (x - y, 1, -1),
    "mul": lambda x, y: (x * y, y, x),
    "truediv": lambda x, y: (x / y, 1 / y, -x / y / y),
    "pow": power,
}
UNARY: dict[str, Callable[[float], tuple[float, float]]] = {
    "sin": lambda x: (math.sin(x), math.cos(x)),
    "cos": lambda x: (math.cos(x), -math.sin(x)),
    "exp": lambda x: (math.exp(x), math.exp(x)),
    "log": lambda x: (math.log(x), 1 / x),
    "sqrt": lambda x: (math.sqrt(x), 0.5 / math.sqrt(x)),
    "tanh": lambda x: (math.tanh(x), 1 - math.tanh(x) ** 2),
}


def binary(rule: Callable[[float, float], tuple[float, float, float]]) -> Callable[..., Any]:
    """Make an operation on Duals and Vectors; `rule` gives the value and both derivatives."""

    def compute(a: Any, b: Any) -> Any:
        if isinstance(a, Vector) or isinstance(b, Vector):
            return by_components(compute, a, b)
        x, y = lift(a), lift(b)
        value, by_x, by_y = rule(x.value, y.value)
        return Dual(value, by_x * x.slope + by_y * y.slope)

    return compute


def unary(rule: Callable[[float], tuple[float, float]]) -> Callable[[Any], Any]:
    """Make a function of Duals and Vectors; `rule` gives the value and the derivative."""

    def compute(a: Any) -> Any:
        if isinstance(a, Vector):
            return Vector([compute(part) for part in a.parts])
        x = lift(a)
        value, by_x = rule(x.value)
        return Dual(value, by_x * x.slope)

    return compute


def compared(kind: str) -> Callable[[Any, Any], bool]:
    """Make a comparison; it raises Kink if the values nearly agree and the derivatives differ."""

    def compare(a: Any, b: Any) -> bool:
        x, y = lift(a), lift(b)
        is_fixed = not np.any(x.slope - y.slope)
        if abs(x.value - y.value) < NEAR and not is_fixed:
            raise Kink
        return bool(getattr(operator, kind)(x.value, y.value))

    return compare


def flip(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: f(b, a)


class Vector:
    """A mutable vector of Duals; `x` and `y` are the components 0 and 1."""

    def __init__(self, parts: Any) -> None:
        self.__dict__["parts"] = [lift(part) for part in parts]

    def __getitem__(self, k: int) -> Dual:
        return self.parts[k]  # type: ignore[no-any-return]

    def __setitem__(self, k: int, x: Any) -> None:
        self.parts[k] = lift(x)

    def __getattr__(self, name: str) -> Any:
        if not set(name) <= {"x", "y"}:
            raise AttributeError(name)
        found = [self.parts["xy".index(c)] for c in name]
        return found[0] if len(found) == 1 else Vector(found)

    def __setattr__(self, name: str, x: Any) -> None:
        self.parts["xy".index(name)] = lift(x)

    def __matmul__(self, other: Vector) -> Vector:
        """The product of a matrix, which `outer_product` made, with a vector."""
        return Vector([row.dot(other) for row in self.rows])

    def sum(self) -> Any:
        return sum(self.parts[1:], self.parts[0])

    def dot(self, other: Vector) -> Any:
        return (self * other).sum()  # type: ignore[operator]

    def norm(self, eps: float) -> Any:
        """sqrt(self · self + eps)"""
        return FUNCTIONS["sqrt"](self.dot(self) + eps)

    def outer_product(self, other: Vector) -> Any:
        """A copy of this vector that also has `rows`: the products of all components."""
        made = Vector(self.parts)
        made.__dict__["rows"] = [Vector([part * q for q in other.parts]) for part in self.parts]
        return made


def by_components(f: Callable[[Any, Any], Any], a: Any, b: Any) -> Vector:
    """`f` of the components of two vectors, or of a vector and a number."""
    n = len((a if isinstance(a, Vector) else b).parts)
    columns = [x.parts if isinstance(x, Vector) else [x] * n for x in (a, b)]
    return Vector([f(x, y) for x, y in zip(*columns, strict=True)])


for _kind, _rule in BINARY.items():
    for _class in (Dual, Vector):
        setattr(_class, f"__{_kind}__", binary(_rule))
        setattr(_class, f"__r{_kind}__", flip(binary(_rule)))
for _kind in ("lt", "le", "gt", "ge"):
    setattr(Dual, f"__{_kind}__", compared(_kind))
FUNCTIONS: dict[str, Callable[..., Any]] = {name: unary(rule) for name, rule in UNARY.items()}


def larger(a: Any, b: Any) -> Any:
    """`ti.max` of two integers, Duals or Vectors; Kink if two Duals are too close."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if isinstance(a, Vector) or isinstance(b, Vector):
        return by_components(larger, a, b)
    return lift(a) if a is b or lift(a) > lift(b) else lift(b)


def smaller(a: Any, b: Any) -> Any:
    """`ti.min` of two integers or Duals; Kink if two Duals are too close."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return lift(a) if a is b or lift(a) < lift(b) else lift(b)


def rounded(f: Callable[[float], int]) -> Callable[[Any], int]:
    """Make a function of a Dual to an integer; raises Kink near integers unless `a` is constant."""

    def compute(a: Any) -> int:
        x = lift(a)
        if abs(x.value - round(x.value)) < NEAR and np.any(x.slope):
            raise Kink
        return f(x.value)

    return compute


# --- memory and programs -------------------------------------------------------------------------


Index = int | tuple[int, ...] | None


class Memory:
    """A field in plain Python: a row-major list of Duals, integers or Vectors.

    `shape` is () for fields of one axis.
    """

    def __init__(self, elements: Any, shape: tuple[int, ...] = ()) -> None:
        self.elements, self.shape = elements, shape

    def place(self, k: Index) -> int:
        """Position of an element in `elements`. Raises IndexError for a tuple out of bounds."""
        if not isinstance(k, tuple):
            return k or 0
        if not all(0 <= i < n for i, n in zip(k, self.shape, strict=True)):
            raise IndexError(k)
        return int(np.ravel_multi_index(k, self.shape))

    def __getitem__(self, k: Index) -> Any:
        return self.elements[self.place(k)]

    def __setitem__(self, k: Index, x: Any) -> None:
        is_number = isinstance(self[k], Dual)
        self.elements[self.place(k)] = lift(x) if is_number else copied(x)

    def __iter__(self) -> Iterator[Any]:
        return np.ndindex(self.shape) if self.shape else iter(range(len(self.elements)))

    def copy_from(self, other: Memory) -> None:
        self.elements = [copied(x) for x in other.elements]

    def fill(self, x: float) -> None:
        for k, e in enumerate(self.elements):
            self.elements[k] = Vector([x] * 2) if isinstance(e, Vector) else type(e)(x)


def copied(x: Any) -> Any:
    """A copy of a Vector; any other `x` itself."""
    return Vector(x.parts) if isinstance(x, Vector) else x


class Plain(ast.NodeTransformer):
    """Rewrites a program of the kernel language as plain Python.

    Vectors are copied where they are assigned or passed by value. A call of `grow`, which changes
    its first argument, becomes an assignment of its result.
    """

    def visit_FunctionDef(self, n: ast.FunctionDef) -> ast.FunctionDef:
        """Drop decorators and annotations; copy parameters passed by value; let `grow` return."""
        self.generic_visit(n)
        passed = [a.arg for a in n.args.args if "template" not in ast.dump(a)]
        first = n.args.args[0].arg if n.args.args else ""
        for a in n.args.args:
            a.annotation = None
        n.body[:0] = [ast.parse(f"{name} = copied({name})").body[0] for name in passed]
        if n.name == "grow":
            n.body.append(ast.parse(f"return {first}").body[0])
        n.decorator_list = []
        return n

    def visit_Assign(self, n: ast.Assign) -> ast.Assign:
        self.generic_visit(n)
        if not isinstance(n.value, ast.Tuple):
            n.value = ast.Call(ast.Name("copied", ast.Load()), [n.value], [])
        return n

    def visit_Expr(self, n: ast.Expr) -> ast.stmt:
        """Turn the statement `grow(x, ...)` into `x = grow(x, ...)`."""
        self.generic_visit(n)
        text = ast.unparse(n)
        if text.startswith("grow("):
            assert isinstance(n.value, ast.Call)
            return ast.parse(f"{ast.unparse(n.value.args[0])} = {text}").body[0]
        return n

    def visit_Call(self, n: ast.Call) -> ast.Call:
        """Pass the array and the index to `ti.atomic_*` in place of the element."""
        self.generic_visit(n)
        if ast.unparse(n.func).startswith("ti.atomic_"):
            place = n.args[0]
            assert isinstance(place, ast.Subscript)
            n.args[:1] = [place.value, place.slice]
        return n


def atomic(f: Callable[[Any, Any], Any]) -> Callable[[Memory, Index, Any], Any]:
    """Make a function that sets an element to `f(old, x)` and returns the old value."""

    def change(memory: Memory, k: Index, x: Any) -> Any:
        old = memory[k]
        memory[k] = f(old, x)
        return old

    return change


TI = SimpleNamespace(
    **FUNCTIONS, Vector=Vector, max=larger, min=smaller, abs=abs, atan2=binary(arctangent),
    select=lambda c, a, b: a if c else b, floor=rounded(math.floor), static=lambda x: x,
    ndrange=lambda *n: np.ndindex(n) if len(n) > 1 else range(*n), loop_config=lambda **_: None,
    atomic_max=atomic(larger), atomic_min=atomic(smaller), atomic_add=atomic(operator.add),
    atomic_sub=atomic(operator.sub), atomic_mul=atomic(operator.mul),
)  # fmt: skip


def define(text: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Execute the rewritten `text` with these fields; all names that it defines."""
    tree = ast.fix_missing_locations(Plain().visit(ast.parse(text)))
    names = {"ti": TI, "copied": copied, "int": rounded(int), "float": lift, **fields}
    exec(compile(tree, "<plain>", "exec"), names)
    return names
