"""What has to be known of a Func before its first instruction is written.

Owns: one walk over the ops, and what it finds. Must not know: SPIR-V.

    >>> survey_func(fn).has_fence
    False
"""

from __future__ import annotations

import math
from typing import NamedTuple

from vkchi.errors import CompilationError, DeviceError
from vkchi.ir.core import Func, Op, Value, walk
from vkchi.ir.ops import PLACES, Effect, effect_of
from vkchi.target.caps import Caps
from vkchi.types import Array, Ptr, scalar_of, u1

BITWISE_ATOMICS = frozenset({"atomic_cas", "atomic_exchange"})
REMOVABLE = frozenset({Effect.PURE, Effect.READ, Effect.ALLOC})


class Survey(NamedTuple):
    """`indexed`: `local` ops whose components are reached by computed indices. `as_bits`: `shared`
    ops of floats that are exchanged or compared and swapped, and of narrow numbers whose words are
    asked for, so are kept as unsigned integers.
    `strays`: `shared` ops with an index that may be outside. `dead`: ops of the body that only
    compute what the launch does instead (a loop's end)."""

    indexed: frozenset[Value]
    as_bits: frozenset[Value]
    strays: frozenset[Value]
    dead: frozenset[Value]
    has_fence: bool


def survey_func(fn: Func) -> Survey:
    """One walk over the Func."""
    origin: dict[Value, Value] = {}
    indexed: set[Value] = set()
    as_bits: set[Value] = set()
    strays: set[Value] = set()
    has_fence = False
    for op in walk(fn.body):
        kind = op.kind
        if kind in PLACES:
            root = origin[op] = origin.get(op.args[0], op.args[0])
            if kind == "member_at":
                indexed.add(root)
            elif kind == "elem" and op.attr != "inside":
                strays.add(root)
        elif kind in BITWISE_ATOMICS:
            place = op.args[0]
            if isinstance(place.type, Ptr) and scalar_of(place.type.elem).kind == "f":
                as_bits.add(origin.get(place, place))
        elif kind == "word":
            as_bits.add(origin.get(op.args[0], op.args[0]))
        elif kind == "fence":
            has_fence = True
    return Survey(
        frozenset(indexed), frozenset(as_bits), frozenset(strays), find_dead(fn), has_fence
    )


def find_dead(fn: Func) -> frozenset[Value]:
    """Ops before the `parallel` op that only its `end` needs: the launch knows the count."""
    ops = fn.body.ops
    at = next((k for k, op in enumerate(ops) if op.kind == "parallel"), None)
    if not at:
        return frozenset()
    used: set[Value] = {ops[at].args[0]}
    for op in ops[at + 1 :]:
        note_uses(op, used)
    for region in ops[at].regions:
        for op in walk(region):
            used.update(op.args)
    dead: set[Value] = set()
    for op in reversed(ops[:at]):
        if effect_of(op.kind) in REMOVABLE and op not in used:
            dead.add(op)
        else:
            note_uses(op, used)
    return frozenset(dead)


def note_uses(op: Op, used: set[Value]) -> None:
    """Add what the op and the ops inside it take."""
    used.update(op.args)
    for region in op.regions:
        for inner in walk(region):
            used.update(inner.args)


# --- workgroup memory ----------------------------------------------------------------------------


def check_shared(fn: Func, survey: Survey, caps: Caps) -> None:
    """Raises DeviceError if the arrays of a workgroup need more memory than the device gives it."""
    arrays = [op for op in walk(fn.body) if op.kind == "shared"]
    needed = sum(shared_bytes(op, survey) for op in arrays)
    if needed > caps.shared_bytes:
        sentence = (
            f"the shared arrays of a workgroup take {needed} bytes, and this device has "
            f"{caps.shared_bytes}"
        )
        raise DeviceError(
            str(CompilationError(sentence, arrays[-1].span, help="make them smaller"))
        )


def shared_bytes(op: Op, survey: Survey) -> int:
    """The bytes of a workgroup array; numbers kept as words, and truth values, take four each."""
    t = op.type
    assert isinstance(t, Array) and t.shape is not None
    elem = scalar_of(t.elem)
    each = max(elem.size_bytes, 4) if op in survey.as_bits or elem is u1 else elem.size_bytes
    elements = math.prod(t.shape) + (op in survey.strays)
    return elements * t.scalars_per_element * each
