"""Op table rows that depend on the invocation: indices, barriers, subgroup ops, reports.

A report op's attr is a site: an index into the kernel's table of sites (`vkchi.reports.sites`). A
site holds the message and the source line. The first argument is the index of the reporting
invocation, the others are the values. Lines of one invocation stay in order; there is no order
between invocations.

    report_line %thread, %x [3]         ; print(x)
    report_failure %thread, %i [4]      ; assert i < n: the invocation may end here
    report_first %thread, %x [5]        ; a stored value is not finite
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vkchi.ir.core import extreme_bits, value_of
from vkchi.ir.op_table.interval_rules import nonnegative
from vkchi.ir.op_table.table import Effect, SignatureError, Trait, add_row, list_types
from vkchi.types import Scalar, Tensor, Type, i32, scalar_of
from vkchi.types.lazy_numpy import np

_OWN, _SAME = Trait.PER_INVOCATION, Trait.UNIFORM
_APART, _VARIES = Trait.DISTINCT, Trait.VARIES
for _name, _doc, _traits in (
    ("thread_index", "index of this invocation in the dispatch", _OWN | _VARIES),
    ("local_index", "index of this invocation in its workgroup", _OWN | _APART | _VARIES),
    ("group_index", "index of this workgroup in the dispatch", _OWN | _SAME | _VARIES),
    ("group_size", "invocations of a workgroup", _OWN | _SAME),
    ("grid_size", "invocations of the dispatch", _OWN | _SAME),
    ("subgroup_size", "invocations of a subgroup", _OWN | _SAME),
    ("subgroup_index", "index of this invocation in its subgroup", _OWN | _APART | _VARIES),
):
    add_row(_name, " -> i32", None, _doc, traits=_traits, interval=nonnegative)
add_row(
    "has_iteration", " -> u1", None,
    "false in invocations that pad a loop to whole workgroups (`opt.mapping.padding`)",
    traits=_OWN | _VARIES,
)  # fmt: skip
TILE = "tile"  # name of workgroup arrays through which tiles exchange values, padding included
TILE_BLOCK = 64  # invocations of a workgroup without `block_dim`: whole tiles of all sizes
_STREAM = Trait.LOWERED | Trait.VARIES | Trait.OWNED
_DRAW = "32 fresh random bits of this invocation's stream"
add_row("random", " -> u32", None, _DRAW, Effect.WRITE, traits=_STREAM)

# --- synchronization, and values of other invocations --------------------------------------------

ARITHMETIC = ("add", "mul", "min", "max", "and", "or", "xor")
# Prefix of a reduction's name -> the active invocations that it combines.
SPANS = {
    "": "all of the subgroup's active invocations",
    "inclusive_": "the subgroup's active invocations up to this one",
    "exclusive_": "the subgroup's active invocations before this one; of none, the identity",
}
# Reads of other invocations' values; undefined if these invocations are inactive.
EXCHANGES = {
    "broadcast": "the value of the invocation at an index that is the same for all",
    "shuffle": "the value of the invocation at an index",
    "shuffle_up": "the value of the invocation so many before this one",
    "shuffle_down": "the value of the invocation so many behind this one",
    "shuffle_xor": "the value of the invocation at this one's index xor a mask",
}
EXCHANGING = frozenset(f"subgroup_{_name}" for _name in EXCHANGES)
# fmt: off
_TRAITS = {
    "exit_invocation": Trait.WAITLESS, "fence": Trait.WAITLESS, "subgroup_elect": Trait.DISTINCT,
}
for _name, _sig, _doc in (
    ("exit_invocation", "", "the invocation ends here"),
    ("barrier", "", "all invocations of the workgroup arrive, and see its shared memory"),
    ("fence", "", "order this invocation's memory accesses for the others"),
    ("subgroup_elect", " -> u1", "true in one active invocation of the subgroup"),
    *[(f"subgroup_{_span}{_kind}",
       f"T:{'num' if _kind in ('add', 'mul', 'min', 'max') else 'bits'}.scalar -> T",
       f"{_kind} over {_over}") for _span, _over in SPANS.items() for _kind in ARITHMETIC],
    *[(f"subgroup_{_kind}", "T:any.scalar, u32 -> T", _value)
      for _kind, _value in EXCHANGES.items()],
    ("subgroup_first", "T:any.scalar -> T", "the value of the subgroup's first active invocation"),
    ("subgroup_all", "u1 -> u1", "true in all active invocations"),
    ("subgroup_any", "u1 -> u1", "true in some active invocation"),
    ("subgroup_all_equal", "T:any.scalar -> u1",
     "whether all active invocations have the same value; NaN is none"),
    ("subgroup_ballot", "u1 -> u32",
     "bit k: whether true in invocation k, which is active; of the first 32"),
    ("subgroup_ballot_wide", "u1 -> u64",
     "bit k: whether true in invocation k, which is active; of the first 64"),
    ("warp_ballot", "u1 -> u32",
     "bit k: whether true in invocation k, which is active, of this one's 32 of the subgroup"),
    ("subgroup_barrier", "", "all active invocations of the subgroup arrive"),
):
    add_row(_name, _sig, None, _doc, Effect.SYNC, traits=_TRAITS.get(_name, Trait.NONE))
# fmt: on

# --- reports to the host -------------------------------------------------------------------------

REPORTS = {
    "report_line": "append these values to what the launch prints",
    "report_once": "the same, but only for the first invocation of a launch that comes here",
    "report_failure": "note a failed check; the invocation may end here",
    "report_first": "note a failed check; the invocation goes on",
}


def _report(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if not ts or ts[0] is not i32:
        raise SignatureError(f"takes the invocation's index first, not {list_types(ts)}")
    if not all(isinstance(t, Scalar | Tensor) for t in ts):
        raise SignatureError(f"reports numbers and tensors, not {list_types(ts)}")
    return None


for _name, _doc in REPORTS.items():
    add_row(_name, _report, None, _doc, Effect.REPORT, attr="site: int", traits=Trait.LOWERED)

# --- meaning of subgroup ops for a subgroup of one invocation ------------------------------------

Act = Callable[[Sequence[Any], Type], Any]


def _zero(t: Scalar) -> Any:
    return t.dtype.type(0)


# op -> identity: the reduction of no values
IDENTITIES: dict[str, Callable[[Scalar], Any]] = {
    "add": _zero,
    "mul": lambda t: t.dtype.type(1),
    "min": lambda t: value_of(extreme_bits(t, 1), t),
    "max": lambda t: value_of(extreme_bits(t, -1), t),
    "and": lambda t: ~_zero(t),
    "or": _zero,
    "xor": _zero,
}


def _nothing(name: str) -> Act:
    return lambda args, t: IDENTITIES[name](scalar_of(t))


def _own(args: Sequence[Any], t: Type) -> Any:
    return args[0]


# By op: a function of its arguments and result type.
REFERENCE: dict[str, Act] = {
    **{f"subgroup_{span}{name}": _own for span in ("", "inclusive_") for name in ARITHMETIC},
    **{f"subgroup_exclusive_{name}": _nothing(name) for name in ARITHMETIC},
    **{f"subgroup_{name}": _own for name in (*EXCHANGES, "first", "all", "any")},
    "subgroup_all_equal": lambda args, t: np.bool_(args[0] == args[0]),
    "subgroup_ballot": lambda args, t: np.uint32(bool(args[0])),
    "subgroup_ballot_wide": lambda args, t: np.uint64(bool(args[0])),
    "warp_ballot": lambda args, t: np.uint32(bool(args[0])),
    "subgroup_barrier": lambda args, t: None,
    "subgroup_size": lambda args, t: np.int32(1),
    "subgroup_index": lambda args, t: np.int32(0),
    "subgroup_elect": lambda args, t: np.bool_(True),
    "has_iteration": lambda args, t: np.bool_(True),
}
