"""`Tape(validation=True)`: kernels that break the data-access rules are found, element by element.

Owns: running a call watched. Must not know: how accesses are watched.
"""

from __future__ import annotations

from typing import Any

from vkchi.autodiff.calls import Call, companion, whole
from vkchi.autodiff.variants import Variant
from vkchi.autodiff.watched import Watched, flag_type, watch
from vkchi.compiler import build
from vkchi.errors import KernelAssertionError
from vkchi.fields.storage import Storage
from vkchi.span import Span
from vkchi.types import i32


def run_watched(call: Call, flags: dict[int, Storage]) -> Any:
    """Run a kernel; what it returns. `flags` are those of all calls so far, by array.

    Raises KernelAssertionError where it overwrites an element that was read before.
    """
    plan = call.plan
    names = frozenset(n for n, a in call.arrays.items() if companion(a, "grad") is not None)
    key = ("watched", names)
    if key not in plan.derived:
        made = watch(plan.func, names)
        built = build(made.func, plan.runtime.options, plan.runtime.device.caps)
        plan.derived[key] = (made, Variant(plan, made.func, built, call.args))
    made, variant = plan.derived[key]
    broken = Storage(plan.runtime, i32, ())
    own = {made.flags[name]: flag_of(made, name, call, flags) for name in made.flags}
    result = variant.run(call, {**call.arrays, **own, "broken": broken})
    number = int(broken.read(()))
    if number:
        refuse(call, made.ops[number - 1].span)
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


def refuse(call: Call, span: Span | None) -> None:
    """Raises KernelAssertionError for a broken rule."""
    place = f"{span.place}: " if span is not None else ""
    raise KernelAssertionError(
        f"{place}(kernel={call.name}) breaks the global data access rule: an element that was read "
        "before is overwritten; without validation=True it may be, and gradients are right"
    )
