"""Bit-exactness proof: specializing a loop on its index range cannot change float results.

A pass that restricts the index range (index-set splitting) removes branches and clamps that have no
effect in that range. That keeps floats bit-identical, except where operands become constants. The
compiler then folds the op, with other functions than the device. Or it strength-reduces it (a
product for a power), or deletes an identity (`x + 0.0`, where x may be -0.0).

So all variants of a loop agree if each operand of each float op is *opaque*, defined outside the
loop, or the same constant in all variants. Opaque values are loads from arrays that the loop only
reads, and results computed from them. Ops that only move components or change signs may have any
operands.

Known limits: only one variant may find two opaque values to be equal (`max(x, x)` is x). Then the
sign of a NaN and the flushing of subnormals may differ. Undefined integer results (`7 // 0`) may
differ too.

    y[i] = 0.5 * (x[i - 1] + x[max(i, 3)])        is_bit_exact(loop): True
    y[i] = sin(i * 0.1) + (x[i] if i > 0 else 0)   False
"""

from __future__ import annotations

from vkchi.analysis.cost import constant_trips
from vkchi.ir.core import Op, Param, Region, Value, base_memory, walk
from vkchi.ir.ops import (
    CARRIERS,
    CHOICES,
    CONVERSIONS,
    READS,
    TABLE,
    UPDATES,
    WRITES,
    Effect,
    bodies_of,
)
from vkchi.types import Scalar, Tensor, scalar_of


def is_bit_exact(loop: Op) -> bool:
    """True if specializing a `parallel` on its index range provably changes no float result.

    False if the loop contains atomics.
    """
    body = loop.regions[0]
    ops = list(walk(body))
    if any(op.kind in UPDATES for op in ops):
        return False
    written = {base_memory(op.args[0]) for op in ops if op.kind in WRITES}
    regions = [body, *(r for op in ops for r in op.regions)]
    inside = {v for op in ops for v in op.results}.union(*[r.params for r in regions])
    return BitExactness(inside, written).region(body)


def is_float(v: Value) -> bool:
    return isinstance(v.type, Scalar | Tensor) and scalar_of(v.type).kind == "f"


class BitExactness:
    """Traversal of a loop body that collects `opaque` values.

    `inside` are the values defined in the loop; `written` is the memory that it writes. A variant
    is the loop specialized to a part of its index range.
    """

    def __init__(self, inside: set[Value], written: set[Value]) -> None:
        self.inside, self.written = inside, written
        self.opaque: set[Value] = set()

    def region(self, region: Region) -> bool:
        """True if all floats computed in a region are the same in all variants."""
        return all([self.op(op) for op in region.ops])

    def op(self, op: Op) -> bool:
        """True if the floats computed by an op are the same in all variants.

        Adds opaque results to `opaque`.
        """
        if op.regions:
            return self.control(op)
        row = TABLE[op.kind]
        if op.kind in READS:
            base = base_memory(op.args[0])
            if isinstance(base, Param) and base not in self.written:
                self.opaque.update(op.results)
            return True
        if row.effect is not Effect.PURE or not op.results:
            return True
        if is_float(op):
            return self.arithmetic(op)
        if op.kind in CONVERSIONS and op.args[0] in self.opaque:
            self.opaque.update(op.results)
        are_same = self.keeps_bits if op.kind == "bitcast" else self.is_same
        return all(are_same(v) for v in op.args if is_float(v))

    def keeps_bits(self, v: Value) -> bool:
        """True if a float is defined outside the loop, or loaded from an array that the loop only
        reads.

        A computed float may be a NaN of either sign, so its bits may differ.
        """
        return v not in self.inside or (isinstance(v, Op) and v.kind in READS and v in self.opaque)

    def arithmetic(self, op: Op) -> bool:
        """True if the operands of a float op are the same in all variants.

        Also true for an op that only moves components or changes signs. Adds an opaque result to
        `opaque`.
        """
        operands = op.args[1:] if op.kind == "select" else op.args
        found = [v in self.opaque for v in operands]
        if op.kind in CARRIERS and op.kind not in CHOICES:
            self.opaque.update(op.results if all(found) else ())
            return True
        self.opaque.update(op.results if any(found) else ())
        return all(self.is_same(v) for v in operands)

    def is_same(self, v: Value) -> bool:
        is_settled = v not in self.inside or (isinstance(v, Op) and v.kind == "const")
        return is_settled or v in self.opaque

    def control(self, op: Op) -> bool:
        """True if the floats computed in the regions of a control op are the same in all variants.

        A result of an `if`, or of a `for` with a positive constant trip count, is opaque if every
        region yields an opaque value for it.
        """
        is_same = all([self.region(r) for r in op.regions])
        runs = op.kind == "if" or (op.kind == "for" and has_rounds(op))
        for k, v in enumerate(op.results if runs else ()):
            if all(r.yielded[k] in self.opaque for r in bodies_of(op)):
                self.opaque.add(v)
        return is_same


def has_rounds(loop: Op) -> bool:
    trips = constant_trips(loop)
    return trips is not None and trips.lo > 0
