"""Cautions about nondeterministic calls at compile time: random numbers and clocks.

Such a call runs once; every launch has its result. Calls inside Python functions that lowering runs
are found too, in DEEPEST nested calls at most. Calls inside `ti.static(...)` are intended. A
function that calls any `seed` counts as deterministic.

    note_varying(cx, random.random)
"""

from __future__ import annotations

import ast
import inspect
import sys
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.state.dependencies import referred_names, unbound
from vkchi.frontend.state.pending import PendingCaution
from vkchi.frontend.syntax.source import source_of
from vkchi.frontend.syntax.syntax_facts import nodes_of
from vkchi.span import PACKAGE
from vkchi.target.remarks import Caution

if TYPE_CHECKING:
    from vkchi.frontend.context import Lowering

GENERATORS = {"random": ("Random",), "numpy.random": ("Generator", "RandomState")}
# Methods of generators that draw no number.
STEADY = ("seed", "getstate", "setstate", "get_state", "set_state", "spawn", "jumped")
RANDOM = ("secrets.token_bytes", "uuid.uuid1", "uuid.uuid4", "posix.urandom")
CLOCKS = {
    "time": (
        "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns",
        "process_time", "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime",
        "localtime", "gmtime", "ctime",
    ),
    "datetime": ("now", "utcnow", "today"),
}  # fmt: skip
DEEPEST = 4  # nested calls of Python functions


def note_varying(cx: Lowering, callee: Any) -> None:
    """Add a caution if a function that runs at compile time is known to be nondeterministic.

    Calls inside `ti.static` and in vkchi itself have none.
    """
    kind = (
        ""
        if cx.in_static or cx.span.file.startswith(PACKAGE)
        else nondeterminism_of(callee, DEEPEST)
    )
    if not kind:
        return
    call = cx.call_node
    name = getattr(callee, "__name__", "this") if call is None else ast.unparse(call.func)
    sentence = f"`{name}()` runs once, at compile time: every launch has that one result"
    help = "call it outside, and pass the result as an argument of the kernel"
    if kind == "random":
        help = f"draw in the kernel, by ti.random(), or {help}"
    cx.cautions.append(PendingCaution(Caution("constant", sentence, help, cx.span)))


def nondeterminism_of(callee: Any, depth: int) -> str:
    """Return `random` or `clock` for a nondeterministic function; "" for another, or if unknown.

    `depth` is the number of nested calls to look into.
    """
    name, module = getattr(callee, "__name__", ""), getattr(callee, "__module__", None) or ""
    owner = getattr(callee, "__self__", None)
    if isinstance(owner, type):
        return "clock" if name in CLOCKS.get(owner.__module__, ()) else ""
    if is_generator(owner):
        return "" if name in STEADY else "random"
    if name in CLOCKS.get(module, ()):
        return "clock"
    if f"{module}.{name}" in RANDOM:
        return "random"
    return nondeterminism_inside(callee, depth - 1) if depth else ""


def is_generator(x: Any) -> bool:
    for module, names in GENERATORS.items():
        found = sys.modules.get(module)
        if found is not None and isinstance(x, tuple([getattr(found, name) for name in names])):
            return True
    return False


def nondeterminism_inside(callee: Any, depth: int) -> str:
    """Return the kind of a user's function or method, by the calls in its source; "" if unknown."""
    fn, receiver = unbound(callee)
    if not isinstance(fn, FunctionType):
        return ""
    top = (fn.__module__ or "").partition(".")[0]
    if top in sys.stdlib_module_names or top in ("numpy", "vkchi"):
        return ""
    try:
        node = source_of(fn).node
    except KernelSyntaxError:
        return ""
    names = referred_names(fn)
    if receiver and node.args.args:
        names[node.args.args[0].arg] = receiver[0]
    called = [resolved(n.func, names) for n in nodes_of(node, ast.Call)]
    if any(getattr(x, "__name__", "") == "seed" for x in called):
        return ""
    return next(filter(None, (nondeterminism_of(x, depth) for x in called if x is not None)), "")


def resolved(n: ast.expr, names: dict[str, Any]) -> Any:
    """Return the object that a dotted name denotes; None if that is unknown at compile time."""
    if isinstance(n, ast.Name):
        return names.get(n.id)
    base = resolved(n.value, names) if isinstance(n, ast.Attribute) else None
    if not isinstance(n, ast.Attribute) or base is None:
        return None
    if isinstance(base, ModuleType | type) or is_generator(base):
        return getattr(base, n.attr, None)
    own = getattr(base, "__dict__", {}).get(n.attr)
    found = inspect.getattr_static(type(base), n.attr, None) if own is None else own
    return MethodType(found, base) if isinstance(found, FunctionType) and own is None else own
