"""`ti.simt.subgroup`: functions of a subgroup, a part of a workgroup whose size the device sets.

Arguments are scalars of any type, vectors and matrices. The value of an invocation outside the
subgroup is undefined.
"""

from __future__ import annotations

from vkchi.lang.function import Function

# name -> result
DOCS: dict[str, str] = {
    "barrier": "Wait until all invocations of the subgroup are here.",
    "memory_barrier": "Order this invocation's memory accesses for the rest of the subgroup.",
    "elect": "True in one invocation of the subgroup.",
    "all_true": "True if cond holds in all invocations.",
    "any_true": "True if cond holds in any invocation.",
    "all_equal": "True if value is the same in all invocations.",
    "broadcast": "The value of the invocation at index.",
    "broadcast_first": "The value of the first active invocation.",
    "ballot": "Bit k says whether the predicate holds in invocation k.",
    "ballot64": "The same in 64 bits, for subgroups of more than 32.",
    "group_size": "Number of invocations of a subgroup.",
    "invocation_id": "Index of this invocation in its subgroup.",
    "shuffle": "The value of the invocation at index.",
    "shuffle_up": "The value of the invocation `offset` before this one.",
    "shuffle_down": "The value of the invocation `offset` behind this one.",
    "shuffle_xor": "The value of the invocation at this one's index xor mask.",
}
# prefix -> invocations that it covers
SPANS = {
    "reduce": "all invocations",
    "inclusive": "the invocations up to this one",
    "exclusive": "the invocations before this one",
}
REDUCTIONS = tuple(
    f"{span}_{how}" for span in SPANS for how in ("add", "mul", "min", "max", "and", "or", "xor")
)
for _name in REDUCTIONS:
    _span, _, _how = _name.partition("_")
    DOCS[_name] = f"`{_how}` of the values of {SPANS[_span]}."

FUNCTIONS = {name: Function(name, None, doc) for name, doc in DOCS.items()}


def __getattr__(name: str) -> Function:
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"ti.simt.subgroup has no `{name}`") from None
