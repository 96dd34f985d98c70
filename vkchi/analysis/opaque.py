"""Floats that no pass can find to be a constant, whatever it learns of a loop's indices.

What is learned of indices (an `if` that all iterations take, a limit that none reaches) leaves
floats as they are, bit for bit, but where it makes constants of what a float is computed from: the
compiler computes that one then, by other functions than the device, or in another way (a product
for a power), and leaves out what it changes nothing by (`x + 0.0`, where x may be -0.0). So of two
forms of a loop, of which one knows more of its indices, both give the same where what is computed
of floats has operands that are *opaque*, or the same constants in both.

Opaque is what stands in an array that the loop only reads, and what is computed of that. That two
such are one number may still be known to one form alone (`max(x, x)` is x): what that leaves open
is the sign of a NaN, and whether a subnormal number becomes zero on a device that makes it so. And
integers are the same but for what has no meaning (`7 // 0`).

Owns: this proof. Must not know: what the forms are.

    y[i] = 0.5 * (x[i - 1] + x[max(i, 3)])        gives_the_same_bits(loop): True
    y[i] = sin(i * 0.1) + (x[i] if i > 0 else 0)   False
"""

from __future__ import annotations

from vkchi.analysis.work import constant_trips
from vkchi.ir.control import bodies_of
from vkchi.ir.core import Op, Param, Region, Value, base_of, walk
from vkchi.ir.ops import (
    CARRIERS,
    CHOICES,
    CONVERSIONS,
    READS,
    TABLE,
    UPDATES,
    WRITES,
    Effect,
)
from vkchi.types import Scalar, Tensor, scalar_of


def gives_the_same_bits(loop: Op) -> bool:
    """Whether what a `parallel` writes does not depend on what the compiler knows of its indices,
    nor on the order of iterations, if these do not race. Not where several update one place."""
    body = loop.regions[0]
    ops = list(walk(body))
    if any(op.kind in UPDATES for op in ops):
        return False
    written = {base_of(op.args[0]) for op in ops if op.kind in WRITES}
    regions = [body, *(r for op in ops for r in op.regions)]
    inside = {v for op in ops for v in op.results}.union(*[r.params for r in regions])
    return Reader(inside, written).region(body)


def is_float(v: Value) -> bool:
    """Whether a value is a float, or made of such."""
    return isinstance(v.type, Scalar | Tensor) and scalar_of(v.type).kind == "f"


class Reader:
    """Goes through a loop's body: `opaque` are values that are found to be, of those `inside`;
    `written` is the memory that the loop writes."""

    def __init__(self, inside: set[Value], written: set[Value]) -> None:
        self.inside, self.written = inside, written
        self.opaque: set[Value] = set()

    def region(self, region: Region) -> bool:
        """Whether all floats that a region computes are the same in all forms."""
        return all([self.op(op) for op in region.ops])

    def op(self, op: Op) -> bool:
        """Whether the floats that an op makes are; notes those that are opaque."""
        if op.regions:
            return self.control(op)
        row = TABLE[op.kind]
        if op.kind in READS:
            base = base_of(op.args[0])
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
        """Whether a float is not computed in the loop, which would leave the sign of a NaN open."""
        return v not in self.inside or (isinstance(v, Op) and v.kind in READS and v in self.opaque)

    def arithmetic(self, op: Op) -> bool:
        """The same for a float that is computed, or chosen."""
        operands = op.args[1:] if op.kind == "select" else op.args
        found = [v in self.opaque for v in operands]
        if op.kind in CARRIERS and op.kind not in CHOICES:
            self.opaque.update(op.results if all(found) else ())
            return True
        self.opaque.update(op.results if any(found) else ())
        return all(self.is_same(v) for v in operands)

    def is_same(self, v: Value) -> bool:
        """Whether a value is computed in the same way in all forms: opaque, a constant in all, or
        computed before the loop."""
        is_settled = v not in self.inside or (isinstance(v, Op) and v.kind == "const")
        return is_settled or v in self.opaque

    def control(self, op: Op) -> bool:
        """What branches and loops give is opaque where that is, whichever way they go."""
        is_same = all([self.region(r) for r in op.regions])
        runs = op.kind == "if" or (op.kind == "for" and has_rounds(op))
        for k, v in enumerate(op.results if runs else ()):
            if all(r.yielded[k] in self.opaque for r in bodies_of(op)):
                self.opaque.add(v)
        return is_same


def has_rounds(loop: Op) -> bool:
    """Whether a loop goes round once at least, for sure."""
    trips = constant_trips(loop)
    return trips is not None and trips.lo > 0
