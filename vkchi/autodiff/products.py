"""Reverse mode of products over iterations of a parallel loop (`atomic_mul`).

The old value of an element is a factor, too. The derivative by one factor is the product of the
others, which has no division by zero:

    others(v) = v != 0 ? (zeros == 0 ? product / v : 0) : (zeros == 1 ? product : 0)

`product` is that of the factors that are not 0, and `zeros` is the number of those that are. An
extra run of the loop computes both per element, before the loop is reversed. The derivative by the
old value is applied after the loop is reversed.
"""

from __future__ import annotations

from collections.abc import Callable

from vkchi.analysis.dataflow import is_memory
from vkchi.autodiff.emit import for_each_element, place_in
from vkchi.autodiff.primal import PrimalAnalysis
from vkchi.autodiff.sweep import ForwardSweep, MemoryVersions, SavedValues, SegmentMemory
from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Param, Value, base_memory, walk
from vkchi.ir.num import Num
from vkchi.tuples import NamedTuple


class Factors(NamedTuple):
    """Memory of the same shape as a root: the product of the nonzero factors of each element, and
    the number of zeros among them."""

    product: Value
    zeros: Value


def find_products(loop: Op, primal: PrimalAnalysis) -> list[Value]:
    """Memory outside a parallel loop that holds products of active values."""
    (region,) = loop.regions
    own = {op for op in walk(region) if is_memory(op)}
    roots = dict.fromkeys(base_memory(op.args[0]) for op in walk(region) if op.kind == "atomic_mul")
    return [root for root in roots if root in primal.active.roots and root not in own]


def make_factors(versions: MemoryVersions, root: Value, early: Value) -> Factors:
    """Memory for a root with its old value as only factor. `early` is the root before the loop."""
    b, made = versions.b, Factors(versions.copy(root, early), versions.copy(root, early))

    def begin(*keys: Value) -> None:
        old = Num(b, b.emit("load", element_at(b, early, keys)))
        for memory, v in zip(made, as_factor(old), strict=True):
            b.emit("store", element_at(b, memory, keys), v.v)

    for_each_place(b, root, begin)
    return made


class FactorSweep(ForwardSweep):
    """A run of the loop that collects the factors of its products. It saves no values."""

    def __init__(
        self, b: Builder, primal: PrimalAnalysis, memory: SegmentMemory, invocation: Value,
        factors: dict[Value, Factors],
    ) -> None:  # fmt: skip
        super().__init__(b, primal, SavedValues(primal), memory, invocation)
        self.factors = factors

    def access(self, op: Op) -> None:
        root = base_memory(op.args[0])
        if op.kind != "atomic_mul" or root not in self.factors:
            super().access(op)
            return
        by, zero = as_factor(Num(self.b, self.get(op.args[1])))
        product, zeros = (place_in(self.b, op.args[0], x, self.get) for x in self.factors[root])
        self.b.emit("atomic_mul", product, by.v)
        self.b.emit("atomic_add", zeros, zero.v)


def as_factor(v: Num) -> tuple[Num, Num]:
    """A factor's part in the product of those that are not 0, and in the number of zeros."""
    is_zero = v == 0
    return is_zero.where(v.number(1), v), is_zero.where(v.number(1), v.zero())


def adjoint_of_factor(g: Num, v: Num, product: Num, zeros: Num) -> Num:
    """The adjoint of a factor v, for the adjoint g of the result."""
    zero = v.zero()
    rest = (zeros == 0).where(product / v, zero)
    rest = (v == 0).where((zeros == 1).where(product, zero), rest)
    return g * (g != 0).where(rest, zero)  # 0 if g is 0 and the rest is infinite or NaN


def scale_adjoint(b: Builder, root: Value, early: Value, adjoint: Value, factors: Factors) -> None:
    """Replace the adjoints of a root by those of its old values."""

    def scale(*keys: Value) -> None:
        memory = (adjoint, early, *factors)
        g, old, product, zeros = (Num(b, b.emit("load", element_at(b, x, keys))) for x in memory)
        found = adjoint_of_factor(g, old, product, zeros)
        b.emit("store", element_at(b, adjoint, keys), found.v)

    for_each_place(b, root, scale)


# --- elements of an array, or a variable ---------------------------------------------------------


def for_each_place(b: Builder, root: Value, put: Callable[..., None]) -> None:
    if isinstance(root, Param):
        for_each_element(b, root, put)
    else:
        put()


def element_at(b: Builder, memory: Value, keys: tuple[Value, ...]) -> Value:
    return b.emit("elem", memory, *keys) if isinstance(memory, Param) else memory
