"""Reverse mode of products over iterations of a parallel loop (`atomic_mul`).

The derivative by one factor is the product of the others, which has no division by zero:

    others(v) = old * (v != 0 ? (zeros == 0 ? product / v : 0) : (zeros == 1 ? product : 0))

`product` is that of the factors that are not 0, and `zeros` is the number of those that are. An
extra run of the loop computes both per element, before the loop is reversed. The derivative by the
old value of an element is the product of all factors. It is applied after the loop is reversed.
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
from vkchi.types import Ptr, Scalar, Tensor


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
    """Memory for a root with the factors of no iteration. `early` is the root before the loop."""
    b, made = versions.b, Factors(versions.copy(root, early), versions.copy(root, early))

    def reset(*keys: Value) -> None:
        for place, n in zip((element_at(b, x, keys) for x in made), (1, 0), strict=True):
            b.emit("store", place, b.const(n, element_type(place)))

    for_each_place(b, root, reset)
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
        v = Num(self.b, self.get(op.args[1]))
        is_zero, given = v == 0, self.factors[root]
        product, zeros = (place_in(self.b, op.args[0], x, self.get) for x in given)
        self.b.emit("atomic_mul", product, is_zero.where(v.number(1), v).v)
        self.b.emit("atomic_add", zeros, is_zero.where(v.number(1), v.zero()).v)


def adjoint_of_factor(g: Num, v: Num, old: Num, product: Num, zeros: Num) -> Num:
    """The adjoint of a factor v, for the adjoint g of the result."""
    zero = v.zero()
    rest = (zeros == 0).where(product / v, zero)
    rest = (v == 0).where((zeros == 1).where(product, zero), rest)
    return product_with_zero(g, old * rest)


def scale_adjoint(b: Builder, root: Value, adjoint: Value, factors: Factors) -> None:
    """Multiply the adjoints of a root by the products of all factors."""

    def scale(*keys: Value) -> None:
        place = element_at(b, adjoint, keys)
        product, zeros, g = (
            Num(b, b.emit("load", element_at(b, x, keys))) for x in (*factors, adjoint)
        )
        by = (zeros == 0).where(product, product.zero())
        b.emit("store", place, product_with_zero(g, by).v)

    for_each_place(b, root, scale)


def product_with_zero(g: Num, slope: Num) -> Num:
    """The product, 0 if g is 0 and the slope is infinite or NaN."""
    return g * (g != 0).where(slope, slope.zero())


# --- elements of an array, or a variable ---------------------------------------------------------


def for_each_place(b: Builder, root: Value, put: Callable[..., None]) -> None:
    if isinstance(root, Param):
        for_each_element(b, root, put)
    else:
        put()


def element_at(b: Builder, memory: Value, keys: tuple[Value, ...]) -> Value:
    return b.emit("elem", memory, *keys) if isinstance(memory, Param) else memory


def element_type(place: Value) -> Scalar | Tensor:
    assert isinstance(place.type, Ptr)
    return place.type.elem
