"""Functions that call themselves: inlined again and again, which must end.

Owns: how deep that goes, and what comes of going deeper. A `ti.func` must end while compiling; a
`ti.real_func` goes as deep as `depth_of` says, and where a kernel that runs goes deeper, that is a
failure, which the launch raises. Must not know: how calls are bound and inlined.

    if is_too_deep(cx, fn, bound, is_real=True): return give_up(cx, fn, note)
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.context import Lowering
from vkchi.frontend.operands import is_target, value, weak
from vkchi.frontend.records import Receiver
from vkchi.frontend.scope import Activation
from vkchi.frontend.source import source_of
from vkchi.ir.core import Value
from vkchi.types import Scalar, Tensor
from vkchi.types.structs import StructType

MOST_NESTED = 24  # calls of one ti.func inside each other
MOST_DEEP = 128  # of one real function
MOST_COPIES = 256  # of a real function for one call of it, roughly
MOST_REPEATS = 2 * MOST_COPIES  # where it calls itself by way of others, or by other names


def depth_of(fn: FunctionType) -> int:
    """How deep a real function may call itself: less deep where it does so in several places."""
    calls = [n for n in ast.walk(source_of(fn).node) if isinstance(n, ast.Call)]
    places = sum(ast.unparse(n.func).rpartition(".")[2] == fn.__name__ for n in calls)
    return MOST_DEEP if places < 2 else int(math.log(MOST_COPIES, places))


def is_too_deep(cx: Lowering, fn: FunctionType, bound: dict[str, Any], *, is_real: bool) -> bool:
    """Whether a call of a real function is not to be inlined, as it is in so many of its kind.
    Raises KernelSyntaxError for other functions whose inlining would not end, and where it would
    take too long."""
    act: Activation | None = cx.act
    first: Activation | None = None
    chain, depth = [fn.__name__], 0
    while act is not None:
        chain.append(act.fn.__name__)
        if act.fn is fn:
            depth, first = depth + 1, act
            may_end = any(is_another(act, name, x) for name, x in bound.items())
            if not is_real and (depth >= MOST_NESTED or not may_end):
                raise _recursive(cx, act, chain)
        act = act.outer
    if not is_real or first is None:
        return False
    if depth >= depth_of(fn):
        return True
    first.repeats += 1
    if first.repeats > MOST_REPEATS:
        raise cx.fail(
            f"{fn.__name__}() calls itself in too many ways ({' -> '.join(chain[:5][::-1])}): "
            f"{MOST_REPEATS} copies of it do not do", kind=KernelSyntaxError,
            help="let it call itself by its own name: then it is inlined less deep; or write a loop"
        )  # fmt: skip
    return False


def is_another(act: Activation, name: str, x: Any) -> bool:
    """Whether an argument is known while compiling, and may not be what `act`, a call of the same
    function, got: a number, another object, a part of a list."""
    if weak(x) is not None:
        return True
    if isinstance(x, Value | Receiver) or is_target(x):
        return False
    var = act.blocks[0].get(name)
    return var is None or var.value is not x


def _recursive(cx: Lowering, first: Activation, chain: list[str]) -> Exception:
    """The error for a chain of calls, innermost first, that began with `first`."""
    names = chain[::-1]
    if len(names) > 5:
        names = [names[0], "...", *names[-2:]]
        cx.b.span = cx.span._replace(caller=first.caller)
    return cx.fail(
        f"{chain[0]}() calls itself ({' -> '.join(names)}), and kernels have no recursion",
        kind=KernelSyntaxError,
        help="write a loop, or a ti.real_func; recursion must end at compile time, by an `if` on "
        "ti.static(...) of a ti.template() argument",
    )


def give_up(
    cx: Lowering, fn: FunctionType, types: Sequence[Scalar | Tensor | StructType], *, is_one: bool
) -> Any:
    """What stands in place of the call that goes too deep: a failure, and zeros for its results.
    Raises KernelSyntaxError for structs."""
    deep = f"{fn.__name__}() calls itself more than {depth_of(fn)} times inside each other"
    if any(isinstance(t, StructType) for t in types):
        raise cx.fail(f"{fn.__name__}() calls itself and returns a struct", kind=KernelSyntaxError)
    span, first = cx.b.span, cx.act
    while first.outer is not None and first.outer.fn is fn:
        first = first.outer
    cx.b.span = cx.span._replace(caller=first.caller)
    cx.reports.emit(cx, "depth", [deep])
    cx.b.span = span
    zeros = [value(cx, 0, t) for t in types]
    if not zeros:
        return None
    return zeros[0] if is_one else tuple(zeros)
