"""Compile-time forms: unrolled iteration, `range`, `ti.loop_config`, Python's iterator functions.

FORMS maps functions to handlers that take captured fields as Python objects. Other functions are in
`intrinsics`.

    FORMS[range](cx, 0, n)                  # a range, or RangeOf where n is a kernel value
"""

from __future__ import annotations

import ast
import builtins
from typing import Any

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.calls.activity_calls import ACTIVITY_FORMS
from vkchi.frontend.calls.builtins import CLASS_FORMS
from vkchi.frontend.calls.tables import Handler
from vkchi.frontend.context import LoopConfig, Lowering
from vkchi.frontend.control.loop_limits import check_step
from vkchi.frontend.control.spaces import RangeOf
from vkchi.frontend.ops.trace import traced
from vkchi.frontend.state.reports import lower_print
from vkchi.frontend.values.kinds import is_static
from vkchi.frontend.values.operands import check_constants, is_tensor
from vkchi.frontend.values.python_values import Begin, items_of, lazy_items
from vkchi.lang.compile_time import loop_config, static
from vkchi.lang.ndrange import grouped, rescale_index
from vkchi.target.shader import range_length

UNROLL_LIMIT = 1 << 16


_AT_RUN_TIME = "leave ti.static out to loop at run time"


def unrolled_items(cx: Lowering, x: Any, help: str = _AT_RUN_TIME) -> list[Any]:
    """Return the items of a loop over `ti.static(x)`.

    Raises KernelTypeError, with this help, for more than UNROLL_LIMIT items.
    """
    if isinstance(x, range):
        check_unrolled(cx, range_length(x.start, x.stop, x.step), help)
    items = items_of(cx, x, most=UNROLL_LIMIT + 1)
    check_unrolled(cx, len(items), help)
    return items


def lower_iterable(cx: Lowering, n: ast.expr) -> Any:
    """Return the value of a loop's or comprehension's iterable.

    `ti.static(v)` of a kernel vector is valid there only.
    """
    outer, cx.iterated = cx.iterated, n
    x = cx.expr(n)
    cx.iterated = outer
    return x


def _static(cx: Lowering, *args: Any, **kwargs: Any) -> Any:
    if kwargs or not args:
        raise cx.fail("ti.static takes values, without names", help="write ti.static(x)")
    if len(args) > 1 or cx.call_node is not cx.iterated or not is_tensor(args[0]):
        check_constants(cx, args)
    return args[0] if len(args) == 1 else list(args)


def check_unrolled(cx: Lowering, count: int, help: str) -> None:
    if count > UNROLL_LIMIT:
        some = "more than " * (count == UNROLL_LIMIT + 1)  # counting stopped there
        number = count - (count == UNROLL_LIMIT + 1)
        raise cx.fail(f"this loop would be unrolled {some}{number} times", help=help)


def _range(cx: Lowering, *args: Any, **kwargs: Any) -> Any:
    if kwargs or not 1 <= len(args) <= 3:
        given = len(args) + len(kwargs)
        raise cx.fail(
            f"range takes one to three bounds, {given} given",
            kind=KernelSyntaxError,
            help="write range(begin, end, step), without names" if kwargs else "",
        )
    if len(args) == 3 and isinstance(args[2], int):
        check_step(cx, args[2])
    if all(isinstance(x, int) for x in args):
        return cx.run_python(range, args)
    return RangeOf(0, *args) if len(args) == 1 else RangeOf(*args)


def _iterate(python: Any, gather: Any, begin: Begin = iter, count: int = 1 << 10) -> Handler:
    """Make the handler of a Python function of iterables, applied at compile time.

    The first `count` arguments are iterables, and `gather` combines their items. Other arguments
    must be compile-time constants. The result is a list, or a tuple if `gather` returns one.
    """
    named = python.__name__

    def run(*xs: Any, **options: Any) -> Any:
        found = gather(*xs, **options)
        return found if isinstance(found, tuple) else list(found)

    def call(cx: Lowering, *args: Any, **kwargs: Any) -> Any:
        for k, x in enumerate([*args[count:], *kwargs.values()], start=count):
            if not is_static(x):
                raise cx.fail(
                    f"`{named}` takes a compile-time constant here",
                    arg=k,
                    help="add the value of the kernel to each index",
                    constant=x,
                )
        items = [lazy_items(cx, x, begin) for x in args[:count]]
        return cx.run_python(run, [*items, *args[count:]], kwargs)

    run.__name__ = run.__qualname__ = named
    return call


def _loop_config(cx: Lowering, *args: Any, **kwargs: Any) -> None:
    known = ("block_dim", "serialize", "name", "parallelize", "block_dim_adaptive", "bit_vectorize")
    for name, x in kwargs.items():
        if name not in known:
            raise cx.fail(f"ti.loop_config has no option `{name}`", help=f"it has {known[0]}, ...")
        if not is_static(x):
            raise cx.fail(f"`{name}` of ti.loop_config must be a compile-time constant", constant=x)
    block = kwargs.get("block_dim")
    if args or (block is not None and (not isinstance(block, int) or not 1 <= block <= 1024)):
        raise cx.fail("block_dim of ti.loop_config must be an int from 1 to 1024")
    label = kwargs.get("name")
    if label is not None and not isinstance(label, str):
        raise cx.fail("`name` of ti.loop_config must be a string")
    passive = cx.config.passive
    cx.config = LoopConfig(block, bool(kwargs.get("serialize")), label or "", passive)


FORMS: dict[Any, Handler] = {
    builtins.range: _range,
    builtins.print: lower_print,
    loop_config: _loop_config,
    static: _static,
    **CLASS_FORMS,
    **ACTIVITY_FORMS,
    **{fn: _iterate(fn, fn) for fn in (zip, list, tuple)},
    enumerate: _iterate(enumerate, enumerate, count=1),
    reversed: _iterate(reversed, list, reversed),
    dict: lambda cx, /, *args, **kwargs: cx.run_python(dict, args, kwargs),
    grouped: lambda cx, x: grouped(x),
    rescale_index: traced(rescale_index.python),
}
