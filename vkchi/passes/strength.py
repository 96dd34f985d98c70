"""Divisions of numbers that are never negative, by the device's cheapest means.

Python's `//` and `%` round down, C's toward zero; of natural numbers they are the same, and so is
division of unsigned numbers, which costs least. By a power of two the rounding down is a shift or a
mask (the emitter makes it), so that form is taken.

Natural are extents, constants, indices of loops that begin at such, and what sums, products,
quotients and the like make of them while they cannot overflow: for each value the largest that it
can be is known. Runs after `bounds`, which reads the plain forms, as does the host: ops beside a
`parallel` stay.

Owns: what is natural. Must not know: how division is emitted.

    rem %i, 8    ->    mod %i, 8            floordiv %i, %n    ->    as u32: floordiv %i, %n
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant, constant_int, is_power_of_two
from vkchi.ir.core import Func, Op, Value, find_parallel, has_kind
from vkchi.ir.ops import COUNTED, PER_INVOCATION, REMAINDERS
from vkchi.ir.rebuild import Rebuilder
from vkchi.types import Scalar, Type, u32, u64

ROUND_DOWN = {"truncdiv": "floordiv", "rem": "mod", "floordiv": "floordiv", "mod": "mod"}
UNSIGNED = {32: u32, 64: u64}
Rule = Callable[[list[Any], int], Any]


def _natural(formula: Callable[..., int]) -> Rule:
    """The rule of an op that is natural if all its operands are."""
    return lambda args, top: None if None in args else formula(*args)


def _largest_and(args: list[Any], top: int) -> Any:
    return min((n for n in args if n is not None), default=None)


def _largest_max(args: list[Any], top: int) -> Any:
    known = [n for n in args if n is not None]
    return max(known) if len(known) == len(args) else top if known else None


def _top(args: list[Any], top: int) -> int:
    return top


# How large results can be, from how large the operands can be and the type's largest number.
LARGEST: dict[str, Rule] = {
    "add": _natural(lambda a, b: a + b),
    "mul": _natural(lambda a, b: a * b),
    "min": _natural(min),
    "max": _largest_max,
    "and": _largest_and,
    "shr": _natural(lambda a, b: a),
    "cast": _natural(lambda a: a),
    "bitcast": _natural(lambda a: a),
    "select": lambda args, top: None if None in args[1:] else max(args[1:]),
    **dict.fromkeys(("truncdiv", "floordiv"), _natural(lambda a, b: a)),  # b may be 1
    **dict.fromkeys(REMAINDERS, _natural(lambda a, b: min(a, max(b - 1, 0)))),
    **dict.fromkeys(("shape", *PER_INVOCATION), _top),
}


def reduce_strength(fn: Func) -> Func:
    """The Func with divisions of natural numbers in their cheapest form."""
    if not has_kind(fn.body, ROUND_DOWN):
        return fn
    body = Strengthener(fn).region(fn.body)
    return fn if body is fn.body else Func(fn.name, fn.params, body, fn.span)


class Strengthener(Rebuilder):
    """One run. `most` remembers how large values can be; None of what may be negative."""

    def __init__(self, fn: Func) -> None:
        super().__init__(self.visit_division)
        self.on_host = set(fn.body.ops) if find_parallel(fn) else set()
        self.most: dict[Value, int | None] = {}

    def visit_division(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """The cheaper form of a division of natural numbers, or None."""
        if op.kind in COUNTED:
            self.most[op.regions[0].params[0]] = self.largest_index(*args[:2])
        t = op.type
        if op.kind not in ROUND_DOWN or op in self.on_host or not isinstance(t, Scalar):
            return None
        if t.kind != "i" or t.bits not in UNSIGNED or None in map(self.largest, args):
            return None
        kind = ROUND_DOWN[op.kind]
        if is_constant_power(args[1]):
            return None if kind == op.kind else [b.emit(kind, *args, name=op.name)]
        unsigned = [b.emit("bitcast", v, type=UNSIGNED[t.bits]) for v in args]
        return [b.emit("bitcast", b.emit(kind, *unsigned), type=t, name=op.name)]

    def largest_index(self, begin: Value, end: Value) -> int | None:
        """The largest index of a loop; None if it may begin below zero."""
        if self.largest(begin) is None:
            return None
        end_most = self.largest(end)
        return largest_of(begin.type) if end_most is None else max(end_most - 1, 0)

    def largest(self, v: Value) -> int | None:
        """The largest that v can be; None if v is no integer or may be negative."""
        if v not in self.most:
            self.most[v] = self.find_largest(v)
        return self.most[v]

    def find_largest(self, v: Value) -> int | None:
        """As `largest`, from the op and its operands."""
        number = constant_int(v)
        if number is not None:
            return number if number >= 0 else None
        t = v.type
        if not isinstance(t, Scalar) or t.kind == "f":
            return None
        top, found = largest_of(t), None
        if isinstance(v, Op) and v.kind in LARGEST:
            found = LARGEST[v.kind]([self.largest(x) for x in v.args], top)
            if found is not None and v.kind in ("truncdiv", "floordiv"):
                found //= constant_int(v.args[1]) or 1
        if found is None or found > top:
            return None if t.kind == "i" else top
        return int(found)


def largest_of(t: Type) -> int:
    """The largest number of an integer type, or truth value."""
    assert isinstance(t, Scalar)
    return (1 << (t.bits - (t.kind == "i"))) - 1


def is_constant_power(v: Value) -> bool:
    """Whether v is a constant power of two."""
    return isinstance(v, Op) and v.kind == "const" and is_power_of_two(constant(v))
