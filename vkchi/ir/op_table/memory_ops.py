"""Op table rows for memory: addresses, loads, stores, atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.ir.core import bits_of, extreme_bits
from vkchi.ir.op_table.interval_rules import nonnegative
from vkchi.ir.op_table.table import (
    Effect,
    SignatureError,
    Trait,
    add_row,
    check_component,
    list_types,
)
from vkchi.target.magic import MAGIC
from vkchi.tuples import NamedTuple
from vkchi.types import (
    Array,
    Ptr,
    Scalar,
    Tensor,
    Type,
    i32,
    scalar_of,
    u1,
    u32,
    u64,
)
from vkchi.types.lazy_numpy import np

NNEG = "nneg"
WIDEST = 4  # scalars per vectorized load or store


def address_constant(attr: Any) -> int:
    return int(attr[0] if isinstance(attr, tuple) else attr)


def _elem(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if not ts or not isinstance(ts[0], Array):
        raise SignatureError(f"takes an array, not {list_types(ts)}")
    t = ts[0]
    if len(ts) != t.ndim + 1:
        raise SignatureError(f"needs {t.ndim} indices, not {len(ts) - 1}")
    if any(not isinstance(k, Scalar) or k.kind not in "iu" or k.bits < 32 for k in ts[1:]):
        raise SignatureError(f"takes indices of 32 or 64 bit integers, not {list_types(ts[1:])}")
    return Ptr.of(t.elem, t.space)


def _pointer_arg(ts: tuple[Type, ...]) -> Ptr:
    if not ts or not isinstance(ts[0], Ptr):
        raise SignatureError(f"takes a pointer, not {list_types(ts)}")
    return ts[0]


def _member(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    p = _pointer_arg(ts)
    if not isinstance(p.elem, Tensor):
        raise SignatureError(f"has no components: {p.elem}")
    if len(ts) == 1:
        check_component(p.elem, attr)
    return Ptr.of(p.elem.elem, p.space)


def _member_at(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if ts[1:] != (i32,):
        raise SignatureError("takes an i32 component index")
    return _member(ts, attr, given)


def _load(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    return _pointer_arg(ts).elem


def _store(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    p = _pointer_arg(ts)
    if ts[1:] != (p.elem,):
        raise SignatureError(f"cannot store {list_types(ts[1:])} where {p.elem} stands")
    return None


def _atomic(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    p = _pointer_arg(ts)
    if any(t is not p.elem for t in ts[1:]):
        raise SignatureError(f"cannot combine {list_types(ts[1:])} with {p.elem}")
    return p.elem


def _shape(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) != 1 or not isinstance(ts[0], Array) or not isinstance(attr, int):
        raise SignatureError(f"takes an array, not {list_types(ts)}")
    if not 0 <= attr < ts[0].ndim:
        raise SignatureError(f"has no axis {attr}: the array has {ts[0].ndim}")
    return i32


def _magic(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    return _shape(ts, attr, given) and u32


def _local(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) != 1 or not isinstance(ts[0], Scalar | Tensor):
        raise SignatureError(f"takes the first value, not {list_types(ts)}")
    return Ptr.of(ts[0], "local")


def _shared(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if ts or not isinstance(given, Array) or given.space != "shared" or given.shape is None:
        raise SignatureError("needs a shared array type of static shape")
    return given


def _word(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    p = _pointer_arg(ts)
    if not isinstance(p.elem, Scalar) or p.elem.bits >= 32 or p.space == "local":
        raise SignatureError(f"is for numbers of less than 32 bits that others see, not {p}")
    return Ptr.of(u32, p.space)


def _word_shift(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    return _word(ts, attr, given) and u32


def _address(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if not ts or not isinstance(ts[0], Array):
        raise SignatureError(f"takes an array, not {list_types(ts)}")
    if ts[1:2] not in ((), (u32,), (u64,)) or ts[2:] not in ((), (u1,)):
        raise SignatureError(f"takes a u32 or u64 and a u1, not {list_types(ts[1:])}")
    if not isinstance(given, Ptr) or given.space != ts[0].space:
        raise SignatureError(f"gives a place in {ts[0]}, not {given}")
    scalar, t = scalar_of(given.elem), ts[0]
    if scalar is not scalar_of(t.elem) and scalar.bits % t.stored.bits:
        raise SignatureError(f"cannot take {t.stored} for {scalar}")
    if isinstance(given.elem, Tensor) and given.elem.size > WIDEST:
        raise SignatureError(f"gives {WIDEST} scalars at most, not {given.elem.size}")
    return given


def _size(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) != 1 or not isinstance(ts[0], Array) or given not in (u32, u64):
        raise SignatureError(f"takes an array and gives a u32 or u64, not {list_types(ts)}")
    return given


# fmt: off
add_row("elem", _elem, None, "the place of an element; indices outside lead to a harmless place",
        attr="inbounds: the word `inbounds` if the indices are proved in range, or None",
        traits=Trait.PLACE | Trait.LOWERED)
add_row("member", _member, None, "the place of component `attr` of a tensor element",
        attr="component: int", traits=Trait.PLACE | Trait.COMPONENT)
add_row("member_at", _member_at, None, "the place of a component at a computed, clamped index",
        traits=Trait.PLACE | Trait.COMPONENT)
add_row("address", _address, None,
        "the place of up to 4 scalars that begins so many behind an array's first one (components "
        "of a tensor follow each other); a harmless place where the third operand is false",
        attr="scalars: int, added to the second operand; in a pair with `nneg` where that is less "
        "than 2**31 itself, so that it may be added to the array's address",
        traits=Trait.PLACE | Trait.MACHINE)
add_row("word", _word, None, "the place of the 32-bit word in which a narrower number stands",
        traits=Trait.MACHINE)
add_row("word_shift", _word_shift, None, "the bit of its `word` at which a number begins",
        traits=Trait.MACHINE)
add_row("size", _size, None, "how many scalars an array has", traits=Trait.UNIFORM)
add_row("shape", _shape, None, "the extent of axis `attr` of an array", attr="axis: int",
        traits=Trait.UNIFORM | Trait.FIXED, interval=nonnegative)
for _name in MAGIC:
    add_row(_name, _magic, None,
            f"{_name[6:]} of `target.magic` for the extent of axis `attr` of an array",
            attr="axis: int", traits=Trait.UNIFORM | Trait.FIXED)
add_row("local", _local, None, "a private place holding a first value", Effect.ALLOC)
add_row("shared", _shared, None, "an array shared by the workgroup, not initialised", Effect.ALLOC,
        traits=Trait.OWNED)
_ALIGNED = "alignment: bytes that the place is known to be a multiple of, or None: its scalar's"
add_row("load", _load, None, "the value at a place", Effect.READ, attr=_ALIGNED)
add_row("store", _store, None, "put a value at a place", Effect.WRITE, attr=_ALIGNED,
        traits=Trait.REPLACES)
# fmt: on


class Atomic(NamedTuple):
    """An atomic op: stores `combine(old, operand)`, where `combine` is an op kind.

    `identity(t)` are the bits of an operand that leaves every value but a NaN unchanged.
    """

    combine: str
    numpy: Callable[..., Any]
    identity: Callable[[Scalar], int]


ATOMICS = {
    # -0.0 + x is x for every x, but 0.0 + -0.0 is 0.0
    "atomic_add": Atomic("add", np.add, lambda t: bits_of(-0.0 if t.kind == "f" else 0, t)),
    "atomic_min": Atomic("min", np.fmin, lambda t: extreme_bits(t, 1)),
    "atomic_max": Atomic("max", np.fmax, lambda t: extreme_bits(t, -1)),
    "atomic_mul": Atomic("mul", np.multiply, lambda t: bits_of(1, t)),
    "atomic_and": Atomic("and", np.bitwise_and, lambda t: (1 << t.bits) - 1),
    "atomic_or": Atomic("or", np.bitwise_or, lambda t: 0),
    "atomic_xor": Atomic("xor", np.bitwise_xor, lambda t: 0),
}
UPDATES = frozenset(ATOMICS) | {"atomic_exchange", "atomic_cas"}  # these return the old value
WRITES = UPDATES | {"store"}
READS = UPDATES | {"load"}
_TRAITS = {
    "min": Trait.EXTREME | Trait.IDEMPOTENT,
    "max": Trait.EXTREME | Trait.IDEMPOTENT,
    "and": Trait.IDEMPOTENT,
    "or": Trait.IDEMPOTENT,
}
# fmt: off
for _name, _row in ATOMICS.items():
    add_row(_name, _atomic, _row.numpy,
            f"{_row.combine} into a place, per component; gives the old value", Effect.ATOMIC,
            traits=_TRAITS.get(_row.combine, Trait.NONE))
add_row("atomic_exchange", _atomic, lambda old, new: new, "put a value, get the old one",
        Effect.WRITE, traits=Trait.REPLACES)
add_row("atomic_cas", _atomic, None,
        "put the third value where the second stands, bit for bit; the old value", Effect.WRITE)
# fmt: on
