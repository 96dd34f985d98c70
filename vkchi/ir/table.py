"""How the op table is written: what a row holds, and `add_row`.

Owns: `Effect`, `Trait`, `Control`, `Row`, `TABLE`. `ops.py` and the modules of rows beside it fill
the table; everyone reads it from `ops`, which has it complete. Must not know: any row.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from vkchi.ir.intervals import Rule
from vkchi.ir.sig import Signature, SignatureError
from vkchi.tuples import NamedTuple
from vkchi.types import Tensor, Type


class Effect(enum.Enum):
    """What an op may do besides computing its result."""

    PURE = "may be merged, moved, repeated and removed"
    ALLOC = "makes a new place; may be removed if unused, never merged"
    READ = "reads memory; may be removed if unused"
    WRITE = "writes memory or advances state; stays, in order"
    ATOMIC = "reads and writes memory; stays, but commutes with its like"
    REPORT = "tells the host something; stays, in order, and touches no memory of the program"
    SYNC = "orders memory between invocations; nothing moves across"
    CONTROL = "has regions or ends one"


class Trait:
    """What else passes ask of an op: what `Effect` and the numpy meaning do not say: a bit
    each, for an `enum.Flag` takes half a millisecond to make, and its `&` 30 times as long."""

    NONE = 0
    COMMUTES = 1 << 0  # gives the same with its two operands exchanged
    COMPARES = 1 << 1  # an order or equality of two values
    DIVIDES = 1 << 2  # of integers: without meaning where the second operand is 0
    REMAINDER = 1 << 3  # less than the second operand in size
    MERGES = 1 << 4  # may give one number for different ones in one operand
    MAKES_NONFINITE = 1 << 5  # may make an infinity or NaN of plain numbers
    PLACE = 1 << 6  # a place inside the place or array that is its first operand
    PER_INVOCATION = 1 << 7  # known without operands, but not the same in every dispatch
    UNIFORM = 1 << 8  # known without operands, and the same in a whole workgroup
    DISTINCT = 1 << 9  # known without operands, and different within a workgroup
    LOWERED = 1 << 10  # written in other ops before code is emitted (`pipeline.LOWERING`)
    VARIES = 1 << 11  # known without operands, but not the same in a whole dispatch
    CONVERTS = 1 << 12  # one operand, in another type
    REPLACES = 1 << 13  # a write that leaves nothing of what stood there
    EXTREME = 1 << 14  # an atomic that keeps the least, or the greatest
    FIXED = 1 << 15  # a constant, or known at launch without operands: costs nothing to repeat
    COUNTS = 1 << 16  # of integers: a launch can compute it (the counts of `target.shader`)
    RING = 1 << 17  # wrapping operands first or the result at last gives the same
    COMPONENT = 1 << 18  # the place of a component of the element that is its first operand
    IDENTITY = 1 << 19  # gives its first operand
    CHOOSES = 1 << 20  # gives the lesser or the greater of its operands
    LOGIC = 1 << 21  # makes truth values of truth values, or chooses by one
    ROUNDS = 1 << 22  # makes whole numbers of floats
    CARRIES = 1 << 23  # holds numbers of its operands, or their negatives, and no others
    KEEPS_ZERO = 1 << 24  # of one operand: 0 where that is 0
    KEEPS_FACTORS = 1 << 25  # of integers: a power of two that divides all operands divides it
    OWNED = 1 << 26  # memory or state of an invocation or its workgroup, that others have not
    WAITLESS = 1 << 27  # a SYNC op that waits for no other invocation
    IDEMPOTENT = 1 << 28  # an atomic that changes nothing when it is done again


ALL = -1  # operands, or parameters


class Control(NamedTuple):
    """How operands and regions of a control op go together. Behind its `fixed` operands stand the
    first carried values; behind the `index_params` of its last region, the body, the carried ones,
    which the body yields anew. Where it `tests`, its first region says whether to go on.
    `order` is that of iterations: `once` (there is one), `serial` or `parallel`. Where `fixed` is
    ALL, every operand is fixed and every parameter of the body an index."""

    regions: int
    fixed: int
    order: str
    index_params: int = 0
    tests: bool = False


Infer = Callable[[tuple[Type, ...], Any, "Type | None"], "Type | None"]


class Row(NamedTuple):
    """One op. `attr` says what Op.attr holds ("" = None); `control` is of ops with regions;
    `interval`, of integers, says what the result can be (`intervals`); `monotone` has `+` for each
    operand with which the result never falls, a `-` for each with which it never rises."""

    name: str
    effect: Effect
    infer: Infer
    numpy: Callable[..., Any] | None
    doc: str
    sig: str = ""
    attr: str = ""
    traits: int = Trait.NONE
    control: Control | None = None
    interval: Rule | None = None
    monotone: str = ""


TABLE: dict[str, Row] = {}


def add_row(
    name: str,
    sig: str | Infer,
    numpy: Callable[..., Any] | None,
    doc: str,
    effect: Effect = Effect.PURE,
    attr: str = "",
    traits: int = Trait.NONE,
    control: Control | None = None,
    interval: Rule | None = None,
    monotone: str = "",
) -> None:
    infer, text = (_infer_by(sig), sig) if isinstance(sig, str) else (sig, "")
    TABLE[name] = Row(
        name, effect, infer, numpy, doc, text, attr, traits, control, interval, monotone
    )


def _infer_by(text: str) -> Infer:
    signature = Signature(text)
    return lambda ts, attr, given: signature.infer(ts, given)


def effect_of(kind: str) -> Effect:
    """The effect of an op kind. Raises KeyError for an unknown one."""
    return TABLE[kind].effect


def kinds_with(traits: int) -> frozenset[str]:
    """The op kinds that have one of these traits."""
    return frozenset([kind for kind, row in TABLE.items() if row.traits & traits])


def list_types(ts: tuple[Type, ...]) -> str:
    """Operand types as messages show them."""
    return ", ".join(map(str, ts)) or "nothing"


def check_component(t: Tensor, attr: Any) -> None:
    """Raises SignatureError unless t has a component `attr`."""
    if not isinstance(attr, int) or not 0 <= attr < t.size:
        raise SignatureError(f"has no component {attr}: {t} has {t.size}")
