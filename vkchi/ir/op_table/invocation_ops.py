"""Op table rows that depend on the invocation: indices, random bits, barriers, subgroup ops."""

from __future__ import annotations

from vkchi.ir.op_table.interval_rules import nonnegative
from vkchi.ir.op_table.table import Effect, Trait, add_row

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
    "random",
    " -> u32",
    None,
    "32 fresh random bits of this invocation's stream",
    Effect.WRITE,
    traits=Trait.LOWERED | Trait.VARIES | Trait.OWNED,
)
add_row("exit_invocation", "", None, "the invocation ends here", Effect.SYNC, traits=Trait.WAITLESS)
add_row(
    "barrier",
    "",
    None,
    "all invocations of the workgroup arrive, and see its shared memory",
    Effect.SYNC,
)
add_row(
    "fence",
    "",
    None,
    "order this invocation's memory accesses for the others",
    Effect.SYNC,
    traits=Trait.WAITLESS,
)
add_row(
    "subgroup_elect",
    " -> u1",
    None,
    "true in one active invocation of the subgroup",
    Effect.SYNC,
    traits=Trait.DISTINCT,
)
ARITHMETIC = ("add", "mul", "min", "max", "and", "or", "xor")
# Prefix of a reduction's name -> the active invocations that it combines.
SPANS = {
    "": "all of the subgroup's active invocations",
    "inclusive_": "the subgroup's active invocations up to this one",
    "exclusive_": "the subgroup's active invocations before this one; of none, the identity",
}
for _span, _over in SPANS.items():
    for _name in ARITHMETIC:
        _class = "num" if _name in ("add", "mul", "min", "max") else "bits"
        add_row(
            f"subgroup_{_span}{_name}",
            f"T:{_class}.scalar -> T",
            None,
            f"{_name} over {_over}",
            Effect.SYNC,
        )
# Reads of other invocations' values; undefined if these invocations are inactive.
EXCHANGES = {
    "broadcast": "the value of the invocation at an index that is the same for all",
    "shuffle": "the value of the invocation at an index",
    "shuffle_up": "the value of the invocation so many before this one",
    "shuffle_down": "the value of the invocation so many behind this one",
    "shuffle_xor": "the value of the invocation at this one's index xor a mask",
}
EXCHANGING = frozenset(f"subgroup_{_name}" for _name in EXCHANGES)
for _name, _doc in EXCHANGES.items():
    add_row(f"subgroup_{_name}", "T:any.scalar, u32 -> T", None, _doc, Effect.SYNC)
add_row(
    "subgroup_first",
    "T:any.scalar -> T",
    None,
    "the value of the subgroup's first active invocation",
    Effect.SYNC,
)
add_row("subgroup_all", "u1 -> u1", None, "true in all active invocations", Effect.SYNC)
add_row("subgroup_any", "u1 -> u1", None, "true in some active invocation", Effect.SYNC)
add_row(
    "subgroup_all_equal",
    "T:any.scalar -> u1",
    None,
    "whether all active invocations have the same value; NaN is none",
    Effect.SYNC,
)
add_row(
    "subgroup_ballot",
    "u1 -> u32",
    None,
    "bit k: whether true in invocation k, which is active; of the first 32",
    Effect.SYNC,
)
add_row(
    "subgroup_ballot_wide",
    "u1 -> u64",
    None,
    "bit k: whether true in invocation k, which is active; of the first 64",
    Effect.SYNC,
)
add_row(
    "warp_ballot",
    "u1 -> u32",
    None,
    "bit k: whether true in invocation k, which is active, of this one's 32 of the subgroup",
    Effect.SYNC,
)
add_row("subgroup_barrier", "", None, "all active invocations of the subgroup arrive", Effect.SYNC)
