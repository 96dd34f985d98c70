"""What happens while compiling: unrolled iteration, `range`, `ti.loop_config`, Python's iterators.

Owns: FORMS, the functions that the frontend itself knows by identity (the others are in
intrinsics.py): handler(cx, args, kwargs). Must not know: AST classes.

    FORMS[range](cx, [0, n], {})            # a range, or RangeOf where n is a kernel value
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from vkchi.errors import KernelSyntaxError
from vkchi.frontend import arith
from vkchi.frontend.activity_calls import ACTIVITY_FORMS
from vkchi.frontend.classes import CLASS_FORMS
from vkchi.frontend.context import LoopConfig, Lowering, is_field
from vkchi.frontend.loop_limits import check_step
from vkchi.frontend.operands import describe, is_static, name_of
from vkchi.frontend.reports import lower_print
from vkchi.frontend.spaces import RangeOf
from vkchi.frontend.values import ArrayRef
from vkchi.ir.core import Value
from vkchi.lang.matrix import Matrix
from vkchi.lang.static import loop_config
from vkchi.target.shader import trip_count
from vkchi.types import Scalar, Tensor

Form = Callable[[Lowering, list[Any], dict[str, Any]], Any]
UNROLL_LIMIT = 1 << 16


_AT_RUN_TIME = "leave ti.static out to loop at run time"


def unrolled_items(cx: Lowering, x: Any, help: str = _AT_RUN_TIME) -> list[Any]:
    """What a loop over `ti.static(x)` runs through. Raises KernelTypeError, with this help."""
    if isinstance(x, Value) or arith.is_target(x):
        t = x.type
        words = describe(t) if isinstance(t, Scalar | Tensor) else "an array"
        raise cx.fail(f"cannot unroll a loop over a {words}", help="say ti.static(range(...))")
    if isinstance(x, ArrayRef | RangeOf) or is_field(x):
        raise cx.fail("only what is known while compiling can be unrolled", help=help)
    if isinstance(x, Matrix):
        return [x[k] for k in range(x.n)] if x.ndim == 1 else x.to_list()
    if not hasattr(x, "__iter__"):
        raise cx.fail(f"cannot unroll a loop over {name_of(x)}")
    if isinstance(x, range):
        check_unrolled(cx, trip_count(x.start, x.stop, x.step), help)
    items = cx.items_of(x, UNROLL_LIMIT + 1)
    check_unrolled(cx, len(items), help)
    return items


def check_unrolled(cx: Lowering, count: int, help: str) -> None:
    """Raises KernelTypeError for more rounds than are unrolled."""
    if count > UNROLL_LIMIT:
        some = "more than " * (count == UNROLL_LIMIT + 1)  # where it was not counted further
        number = count - (count == UNROLL_LIMIT + 1)
        raise cx.fail(f"this loop would be unrolled {some}{number} times", help=help)


def _range(cx: Lowering, args: list[Any], kwargs: dict[str, Any]) -> Any:
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


def _items(cx: Lowering, x: Any) -> Any:
    return cx.iterate(x) if hasattr(x, "__iter__") else x


def _from_the_end(cx: Lowering, x: Any) -> Any:
    return cx.iterate(x, reversed)


def _itself(cx: Lowering, x: Any) -> Any:
    return x


def _iterate(python: Any, read: Callable[[Lowering, Any], Any], gather: Any) -> Form:
    """Python's own, on lists that may hold kernel values: `gather` of what is read of each."""

    def form(cx: Lowering, args: list[Any], kwargs: dict[str, Any]) -> Any:
        for k, x in enumerate(args):
            if isinstance(x, Value | ArrayRef) or is_field(x):
                raise cx.fail(
                    f"`{python.__name__}` is for what Python can iterate over", arg=k,
                    help="in kernels that is lists, tuples and ranges",
                )  # fmt: skip
        items = [read(cx, x) for x in args]
        return cx.run_python(lambda *xs, **kw: _as_list(gather(*xs, **kw)), items, kwargs)

    return form


def _as_list(x: Any) -> Any:
    return x if isinstance(x, tuple | dict) else list(x)


def _loop_config(cx: Lowering, args: list[Any], kwargs: dict[str, Any]) -> None:
    known = ("block_dim", "serialize", "parallelize", "block_dim_adaptive", "bit_vectorize")
    for name, x in kwargs.items():
        if name not in known:
            raise cx.fail(f"ti.loop_config has no option `{name}`", help=f"it has {known[0]}, ...")
        if not is_static(x):
            raise cx.fail(f"`{name}` of ti.loop_config must be known while compiling")
    block = kwargs.get("block_dim")
    if args or (block is not None and (not isinstance(block, int) or not 1 <= block <= 1024)):
        raise cx.fail("block_dim of ti.loop_config must be an int from 1 to 1024")
    cx.config = LoopConfig(block, bool(kwargs.get("serialize")))


FORMS: dict[Any, Form] = {
    builtins.range: _range,
    builtins.print: lower_print,
    loop_config: _loop_config,
    **CLASS_FORMS,
    **ACTIVITY_FORMS,
    **{fn: _iterate(fn, _items, fn) for fn in (enumerate, zip, list, tuple)},
    reversed: _iterate(reversed, _from_the_end, list),
    dict: _iterate(dict, _itself, dict),
}
