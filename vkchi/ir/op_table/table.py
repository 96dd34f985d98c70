"""Columns of the op table, and `add_row`.

`ops` and the modules of rows that it imports fill the table. Import it from `ops`, where it is
complete.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from vkchi.ir.op_table.interval_rules import Rule
from vkchi.tuples import NamedTuple
from vkchi.types import SCALARS, Scalar, Tensor, Type, scalar_of, u1, with_scalar

CLASSES = {"num": "iuf", "int": "iu", "float": "f", "bits": "iub", "any": "iufb"}
WORDS = {
    "num": "numbers", "int": "integers", "float": "floating-point numbers",
    "bits": "integers or bools", "any": "numbers or bools",
}  # fmt: skip


class SignatureError(TypeError):
    """Error: the arguments of an op do not fit its signature."""


class OpSignature:
    """A parsed signature. `args` and `result` hold its items as strings."""

    __slots__ = ("args", "result", "text")

    def __init__(self, text: str) -> None:
        left, _, right = text.partition("->")
        self.text = text
        self.args = [item.strip() for item in left.split(",") if item.strip()]
        self.result = right.strip()

    @property
    def gives_floats(self) -> bool:
        """True if the result may be, or contain, a float; also for an empty result."""
        item = self.result
        if item in SCALARS:
            return SCALARS[item].kind == "f"
        if item[:2] in ("B(", "U("):
            return False
        classes = dict(arg.partition(":")[::2] for arg in self.args if ":" in arg)
        kinds = classes.get(item.removeprefix("E(").removesuffix(")"), "any")
        return "f" in CLASSES[kinds.partition(".")[0]]

    def infer(self, types: tuple[Type, ...], given: Type | None) -> Type | None:
        """Return the result type for arguments of these types, or None if there is no result.

        `given` is the type for the item `R`. Raises SignatureError if the types do not fit.
        """
        if len(types) != len(self.args):
            raise SignatureError(f"takes {len(self.args)} values, not {len(types)}")
        bound: dict[str, Type] = {}
        for item, t in zip(self.args, types, strict=True):
            _match(item, t, bound)
        if not self.result:
            return None
        if self.result == "R":
            if given is None:
                raise SignatureError("needs a result type")
            return given
        return _resolve(self.result, bound)


def _match(item: str, t: Type, bound: dict[str, Type]) -> None:
    name, _, cls = item.partition(":")
    if cls:
        _check_class(t, cls)
        bound[name] = t
        return
    want = _resolve(item, bound)
    if want is not t:
        raise SignatureError(f"takes {want} here, not {t}")


def _check_class(t: Type, cls: str) -> None:
    kinds, _, shape = cls.partition(".")
    ok = isinstance(t, Scalar | Tensor)
    if shape:
        ok = isinstance(t, Scalar if shape == "scalar" else Tensor)
    elem = t.elem if isinstance(t, Tensor) else t
    if not ok or not isinstance(elem, Scalar) or elem.kind not in CLASSES[kinds]:
        raise SignatureError(f"takes {WORDS[kinds]}, not {t}")


def _resolve(item: str, bound: dict[str, Type]) -> Type:
    if item in bound:
        return bound[item]
    if item in SCALARS:
        return SCALARS[item]
    inner = bound[item[2:-1]]
    if item[0] == "B":
        return with_scalar(inner, u1)
    if item[0] == "U":
        return with_scalar(inner, SCALARS[f"u{scalar_of(inner).bits}"])
    return inner.elem if isinstance(inner, Tensor) else inner


class Effect(enum.Enum):
    """Side effects of an op."""

    PURE = "may be merged, moved, repeated and removed"
    ALLOC = "makes a new place; may be removed if unused, never merged"
    READ = "reads memory; may be removed if unused"
    WRITE = "writes memory or advances state; stays, in order"
    ATOMIC = "reads and writes memory; stays, but commutes with its like"
    REPORT = "tells the host something; stays, in order, and touches no memory of the program"
    SYNC = "orders memory between invocations; nothing moves across"
    CONTROL = "has regions or ends one"


class Trait:
    """Bit flags: properties of ops that `Effect` and the numpy meaning do not state.

    A leaf is an op without operands other than arrays. Flags are plain ints, which are faster than
    an `enum.Flag`.
    """

    NONE = 0
    COMMUTES = 1 << 0  # commutative: exchanging its two operands changes nothing
    COMPARES = 1 << 1  # a comparison of two values
    DIVIDES = 1 << 2  # a division; for integers undefined if the second operand is 0
    REMAINDER = 1 << 3  # a remainder: smaller in magnitude than the second operand
    MERGES = 1 << 4  # not injective: may map different values of one operand to one result
    MAKES_NONFINITE = 1 << 5  # may produce an infinity or NaN from finite operands
    PLACE = 1 << 6  # a pointer derived from its first operand, a pointer or array
    PER_INVOCATION = 1 << 7  # a leaf that depends on the invocation or on the dispatch's grid
    UNIFORM = 1 << 8  # a workgroup-uniform leaf
    DISTINCT = 1 << 9  # a leaf that is divergent within a workgroup
    LOWERED = 1 << 10  # expanded to other ops before emission (stage `lowering`)
    VARIES = 1 << 11  # a leaf that is not dispatch-uniform
    CONVERTS = 1 << 12  # a conversion of one operand to another type
    REPLACES = 1 << 13  # a write that overwrites all of its target
    EXTREME = 1 << 14  # an atomic minimum or maximum
    FIXED = 1 << 15  # a leaf that is constant or known at launch: free to recompute
    COUNTS = 1 << 16  # on integers: the host can compute it at launch (`target.shader.Count`)
    RING = 1 << 17  # modular arithmetic: operands may be wrapped before, or the result after
    COMPONENT = 1 << 18  # a pointer to a component of the element that its first operand points to
    IDENTITY = 1 << 19  # returns its first operand
    CHOOSES = 1 << 20  # returns its least or greatest operand
    LOGIC = 1 << 21  # maps bools to bools, or selects by one
    ROUNDS = 1 << 22  # rounds floats to whole numbers
    CARRIES = 1 << 23  # result components are operand components, perhaps negated
    KEEPS_ZERO = 1 << 24  # unary: maps 0 to 0
    KEEPS_FACTORS = 1 << 25  # on integers: powers of two that divide all operands divide the result
    OWNED = 1 << 26  # private memory or state of an invocation or workgroup
    WAITLESS = 1 << 27  # a SYNC op that waits for no other invocation
    IDEMPOTENT = 1 << 28  # an atomic that changes nothing when repeated
    FORMULA_F64 = 1 << 29  # on f64: computed by the function of this name in `opt.math.f64_math`
    FORMULA_F32 = 1 << 30  # on f32: likewise in `opt.math.f32_math` or `opt.math.powers`
    MACHINE = 1 << 31  # of memory as the emitter sees it: does not occur in a kernel's source IR


ALL = -1  # all operands, or all parameters


class ControlSpec(NamedTuple):
    """Operands and regions of a control op.

    - regions: number of regions.
    - fixed: number of leading operands that are not carried; the others are initial carried values.
      ALL: all of them.
    - order: order of iterations: `once` (a single execution), `serial` or `parallel`.
    - index_params: number of index parameters of the last region, the body. Its others are carried
      values, which it yields anew. ALL: all of them.
    - tests: True if the first region is a condition.
    """

    regions: int
    fixed: int
    order: str
    index_params: int = 0
    tests: bool = False


Infer = Callable[[tuple[Type, ...], Any, "Type | None"], "Type | None"]


class OpRow(NamedTuple):
    """Row of the op table: the properties of one op kind.

    - infer: function from argument types, attr and requested type to the result type.
    - numpy: the op on numpy values; None if it has no such meaning.
    - sig: the signature; "" if `infer` is a function of its own.
    - attr: contents of `Op.attr`; "" for None.
    - control: set for ops with regions.
    - interval: transfer function on integer intervals (`interval_analysis`).
    - monotone: per operand, `+` if the result never falls as it grows, `-` if it never rises.
    """

    name: str
    effect: Effect
    infer: Infer
    numpy: Callable[..., Any] | None
    doc: str
    sig: str = ""
    attr: str = ""
    traits: int = Trait.NONE
    control: ControlSpec | None = None
    interval: Rule | None = None
    monotone: str = ""


TABLE: dict[str, OpRow] = {}


def add_row(
    name: str,
    sig: str | Infer,
    numpy: Callable[..., Any] | None,
    doc: str,
    effect: Effect = Effect.PURE,
    attr: str = "",
    traits: int = Trait.NONE,
    control: ControlSpec | None = None,
    interval: Rule | None = None,
    monotone: str = "",
) -> None:
    infer, text = (_infer_by(sig), sig) if isinstance(sig, str) else (sig, "")
    TABLE[name] = OpRow(
        name, effect, infer, numpy, doc, text, attr, traits, control, interval, monotone
    )


def _infer_by(text: str) -> Infer:
    signature = OpSignature(text)
    return lambda ts, attr, given: signature.infer(ts, given)


def effect_of(kind: str) -> Effect:
    return TABLE[kind].effect


def kinds_with(traits: int) -> frozenset[str]:
    """Return the op kinds that have at least one of these traits."""
    return frozenset([kind for kind, row in TABLE.items() if row.traits & traits])


def list_types(ts: tuple[Type, ...]) -> str:
    return ", ".join(map(str, ts)) or "nothing"


def check_component(t: Tensor, attr: Any) -> None:
    """Raise SignatureError unless `attr` is the index of a component of t."""
    if not isinstance(attr, int) or not 0 <= attr < t.size:
        raise SignatureError(f"has no component {attr}: {t} has {t.size}")
