"""Rows of ops that know of the other invocations: indices, random bits, barriers, subgroups.

Owns: those rows. Must not know: other rows.
"""

from __future__ import annotations

from vkchi.ir.table import Effect, add_row

add_row("thread_index", " -> i32", None, "index of this invocation in the dispatch")
add_row("local_index", " -> i32", None, "index of this invocation in its workgroup")
add_row("group_index", " -> i32", None, "index of this workgroup in the dispatch")
add_row("group_size", " -> i32", None, "invocations of a workgroup")
add_row("grid_size", " -> i32", None, "invocations of the dispatch")
add_row("random", " -> u32", None, "32 fresh random bits of this invocation's stream", Effect.WRITE)
add_row(
    "barrier",
    "",
    None,
    "all invocations of the workgroup arrive, and see its shared memory",
    Effect.SYNC,
)
add_row("fence", "", None, "order this invocation's memory accesses for the others", Effect.SYNC)
add_row("subgroup_size", " -> i32", None, "invocations of a subgroup")
add_row("subgroup_index", " -> i32", None, "index of this invocation in its subgroup")
add_row(
    "subgroup_elect", " -> u1", None, "true in one active invocation of the subgroup", Effect.SYNC
)
for _name in ("add", "mul", "min", "max"):
    add_row(
        f"subgroup_{_name}",
        "T:num.scalar -> T",
        None,
        f"{_name} over the subgroup's active invocations",
        Effect.SYNC,
    )
for _name in ("and", "or", "xor"):
    add_row(
        f"subgroup_{_name}",
        "T:bits.scalar -> T",
        None,
        f"{_name} over the subgroup's active invocations",
        Effect.SYNC,
    )
