"""Recursive functions: inlined up to a depth.

The recursion of a `ti.func` must end at compile time. A `ti.real_func` is inlined to the depth of
`depth_of`. A call that goes deeper at run time is a failure that the launch raises.

    if is_too_deep(cx, fn, bound, is_real=True): return give_up(cx, fn, types, is_one=True)

See also: `call_stack`, for real functions that become a loop.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.context import Lowering
from vkchi.frontend.state.scope import Activation
from vkchi.frontend.syntax.source import source_of
from vkchi.frontend.syntax.syntax_facts import nodes_of
from vkchi.frontend.values.kinds import kind_of
from vkchi.frontend.values.operands import value, weak
from vkchi.frontend.values.struct_values import Receiver
from vkchi.types import Scalar, Tensor
from vkchi.types.struct_types import StructType

MOST_NESTED = 24  # nested calls of one ti.func
MOST_DEEP = 128  # nested calls of one real function
MOST_COPIES = 256  # of a real function per call from outside, approximately
MOST_REPEATS = 2 * MOST_COPIES  # with indirect recursion, or recursion by other names


def depth_of(fn: FunctionType) -> int:
    """Return the depth limit of a real function: lower if it has several recursive calls."""
    calls = nodes_of(source_of(fn).node, ast.Call)
    places = sum(ast.unparse(n.func).rpartition(".")[2] == fn.__name__ for n in calls)
    return MOST_DEEP if places < 2 else int(math.log(MOST_COPIES, places))


def is_too_deep(cx: Lowering, fn: FunctionType, bound: dict[str, Any], *, is_real: bool) -> bool:
    """True if a call of a real function exceeds the depth limit.

    Raises KernelSyntaxError for a real function above MOST_REPEATS copies. For other functions,
    raises it at MOST_NESTED nested calls, and if no argument is a compile-time value that may
    differ from an outer call's.
    """
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
    """True if an argument is a compile-time value, and may differ from the one that `act` received.

    `act` is an outer call of the same function.
    """
    if weak(x) is not None:
        return True
    if kind_of(x).has_type or isinstance(x, Receiver):
        return False
    var = act.blocks[0].get(name)
    return var is None or var.value is not x


def _recursive(cx: Lowering, first: Activation, chain: list[str]) -> Exception:
    """Return the error for a chain of calls, innermost first, that began with `first`."""
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
    """Lower a call beyond the depth limit: emit a failure report, and return zeros of `types`.

    Returns None without types, a tuple unless `is_one`. Raises KernelSyntaxError for structs.
    """
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
