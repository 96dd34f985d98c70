"""`Tape(validation=True)`: kernels that break the data-access rules are found, element by element.

Owns: running a call watched. Must not know: how accesses are watched.
"""

from __future__ import annotations

from typing import Any

from vkchi.autodiff.reaching import name_under
from vkchi.autodiff.watched import BROKEN, Watched, flag_type, watch
from vkchi.errors import DataAccessError
from vkchi.fields.storage import Storage
from vkchi.ir.core import Func, Op
from vkchi.launch.executable import Arrays
from vkchi.span import Span
from vkchi.tape.calls import Call, companion, whole
from vkchi.tape.variants import Variant
from vkchi.types import i32

Read = tuple[str, Span | None]


def run_watched(call: Call, flags: dict[int, Storage], func: Func, own: Arrays) -> Any:
    """Run a kernel in the form `func`, with arrays of its own; what it returns. `flags` are those
    of all calls so far, by array.

    Raises DataAccessError where it overwrites an element that was read before.
    """
    plan = call.plan
    names = frozenset(n for n, a in call.arrays.items() if companion(a, "grad") is not None)
    reads: list[Read] = plan.runtime.watched_reads  # by number, from 1

    def make() -> tuple[Watched, Variant]:
        made = watch(func, names, len(reads) + 1)
        reads.extend((call.name, op.span) for op in made.reads)
        return made, Variant(call, made.func)

    made, variant = plan.derived.watched.find((names, func), make)
    broken = Storage(plan.runtime, i32, (max(1, len(made.ops)),))
    watching = {made.flags[name]: flag_of(made, name, call, flags) for name in made.flags}
    result = variant.run(call, {**call.arrays, **own, **watching, BROKEN: broken})
    found = broken.to_numpy()
    for op, number in zip(made.ops, found):
        if number:
            raise refuse(call, op, reads[number - 1])
    return result


def flag_of(made: Watched, name: str, call: Call, flags: dict[int, Storage]) -> Storage:
    """The flags of an array, made when it is first met."""
    array = whole(call.arrays[name])
    found = flags.get(id(array))
    if found is None:
        param = next(p for p in made.func.params if p.name == name)
        t = flag_type(param)
        found = Storage(call.plan.runtime, t.elem, array.shape, t.layout)
        flags[id(array)] = found
    return found


def refuse(call: Call, op: Op, read: Read) -> DataAccessError:
    """The error for a broken rule."""
    reader, span = read
    return DataAccessError(
        f"(kernel={call.name}) breaks the global data access rule: an element of "
        f"`{name_under(op)}` that was read before is overwritten", op.span,
        notes=((f"{reader}() read it here", span),),
        help="leave out validation=True: elements may be overwritten then, and gradients are right",
    )  # fmt: skip
