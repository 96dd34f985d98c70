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
    "ballot_first_n": "The ballot of the first n invocations, n being at most 32, as a u32.",
    "group_size": "Number of invocations of a subgroup.",
    "log2_group_size": "Its logarithm to base 2.",
    "invocation_id": "Index of this invocation in its subgroup.",
    "shuffle": "The value of the invocation at index.",
    "shuffle_up": "The value of the invocation `offset` before this one.",
    "shuffle_down": "The value of the invocation `offset` behind this one.",
    "shuffle_xor": "The value of the invocation at this one's index xor mask.",
}
LANE_MASKS = {
    "lanemask_lt": "below `lane`",
    "lanemask_le": "up to `lane`",
    "lanemask_eq": "equal to `lane`",
    "lanemask_gt": "above `lane`",
    "lanemask_ge": "from `lane` on",
}
for _name, _lanes in LANE_MASKS.items():
    DOCS[_name] = f"A u32 with the bits of the lanes {_lanes}, which is 0 to 31."
# prefix -> invocations that it covers
SPANS = {
    "reduce": "all invocations",
    "inclusive": "the invocations up to this one",
    "exclusive": "the invocations before this one",
}
SCANS = ("add", "mul", "min", "max", "and", "or", "xor")
SEGMENTED = ("add", "min", "max")
REDUCTIONS = tuple(f"{span}_{how}" for span in SPANS for how in SCANS)
for _name in REDUCTIONS:
    _span, _, _how = _name.partition("_")
    DOCS[_name] = f"`{_how}` of the values of {SPANS[_span]}."

TILED = "{}, of an aligned tile of 2**log2_size invocations."
for _how in SEGMENTED:
    _doc = f"`{_how}` of the values since the last invocation whose head flag is not 0"
    DOCS[f"segmented_reduce_{_how}"] = f"{_doc}."
    DOCS[f"segmented_reduce_{_how}_tiled"] = TILED.format(_doc)
    DOCS[f"reduce_{_how}_tiled"] = TILED.format(f"`{_how}` of the values")
for _span, _over in list(SPANS.items())[1:]:
    for _how in SCANS:
        DOCS[f"{_span}_{_how}_tiled"] = TILED.format(f"`{_how}` of the values of {_over}")
DOCS |= {
    "all_true_tiled": TILED.format("1 if the predicate holds in all invocations, else 0"),
    "any_true_tiled": TILED.format("1 if the predicate holds in any invocation, else 0"),
    "all_equal_tiled": TILED.format("1 if value is the same in all invocations, else 0"),
}

FUNCTIONS = {name: Function(name, None, doc) for name, doc in DOCS.items()}
# Other names of the same functions. Reductions have their result in all invocations.
FUNCTIONS |= {
    "sync": FUNCTIONS["barrier"],
    "mem_fence": FUNCTIONS["memory_barrier"],
    **{f"reduce_all_{how}": FUNCTIONS[f"reduce_{how}"] for how in SEGMENTED},
    **{f"reduce_all_{how}_tiled": FUNCTIONS[f"reduce_{how}_tiled"] for how in SEGMENTED},
}


def __getattr__(name: str) -> Function:
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"ti.simt.subgroup has no `{name}`") from None
