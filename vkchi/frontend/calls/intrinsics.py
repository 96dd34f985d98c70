"""Completion of the tables of callable functions: importing this module fills CALLS and METHODS.

CALLS has function objects of `vkchi.lang`, types and Python's builtins. The functions of
`tables.LATE` are added later.

    CALLS[lang.math.mix].handler(cx, x, y, 0.5)
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import CompilationError, KernelCallError, KernelTypeError
from vkchi.frontend.calls import builtins
from vkchi.frontend.calls.compile_time_forms import FORMS
from vkchi.frontend.calls.tables import CALLS, METHODS, CallHandler, Handler
from vkchi.frontend.ops import elementwise_calls, methods
from vkchi.frontend.ops.conversions import convert_value
from vkchi.frontend.ops.debug_checks import watch_atomic
from vkchi.frontend.ops.tensor_attributes import component_indices
from vkchi.frontend.ops.tensor_construction import (
    call_type,
    make_cols,
    make_diag,
    make_identity,
    make_matrix,
    make_one,
    make_rows,
    make_unit,
    make_zero,
)
from vkchi.frontend.ops.trace import traced
from vkchi.frontend.values.kinds import describe, kind_of, name_of
from vkchi.frontend.values.operands import check_constants
from vkchi.frontend.values.references import Context, Target
from vkchi.frontend.values.struct_values import make_record
from vkchi.frontend.values.trees import StructValue
from vkchi.ir.core import Value
from vkchi.ir.ops import ATOMICS, BITWISE
from vkchi.lang import atomic_functions, compile_time, math, matrix
from vkchi.lang.function import Function
from vkchi.lang.ndrange import ndrange
from vkchi.lang.struct import Struct
from vkchi.types import scalar_of

__all__ = [
    "CALLS", "METHODS", "CallHandler", "Handler", "call_type", "component_indices",
    "methods",
]  # fmt: skip


# --- atomics -----------------------------------------------------------------------------------

# function -> IR op; atomic_sub adds the negated value
_ATOMIC_OPS: dict[Function, str] = {
    fn: "atomic_add" if fn is atomic_functions.atomic_sub else fn.__name__
    for fn in atomic_functions.ATOMICS
}
_INTEGERS = frozenset(k for k, row in ATOMICS.items() if row.combine in BITWISE) | {"atomic_cas"}


def atomic(fn: Function) -> Handler:
    """Make the handler of an atomic function, which returns the old value.

    Its first argument is a Target: the handler raises KernelCallError for another object,
    KernelTypeError for a type that the op does not support.
    """
    kind = _ATOMIC_OPS[fn]

    def swap(cx: Context, x: Any, expected: Any, desired: Any) -> Value:
        target = _check_atomic(cx, fn.__name__, kind, x)
        values = [convert_value(cx, v, target.type) for v in (expected, desired)]
        return target.atomic(cx, kind, *values)

    def call(cx: Context, x: Any, y: Any) -> Value:
        target = _check_atomic(cx, fn.__name__, kind, x)
        v = convert_value(cx, y, target.type)
        is_difference = fn is atomic_functions.atomic_sub
        old = target.atomic(cx, kind, cx.b.emit("neg", v) if is_difference else v)
        if cx.options.debug and kind == "atomic_add":
            watch_atomic(cx, "-" if is_difference else "+", old, v)
        return old

    return swap if fn is atomic_functions.atomic_cas else call


def _check_atomic(cx: Context, name: str, kind: str, x: Any) -> Target:
    if not kind_of(x).is_target:
        given = describe(x.type) if isinstance(x, Value) else name_of(x)
        raise cx.fail(
            f"the first argument of `{name}` must be something that can be assigned to",
            kind=KernelCallError,
            label=given,
            arg=0,
        )
    target: Target = x
    elem = scalar_of(target.type)
    if elem.kind == ("f" if kind in _INTEGERS else "b"):
        takes = "integers" if kind in _INTEGERS else "numbers"
        raise cx.fail(
            f"`{name}` is for {takes}", kind=KernelTypeError, label=describe(target.type), arg=0
        )
    return target


# --- compile-time helpers, hints -----------------------------------------------------------------


class _Words(str):
    """A string that prints without quotes, also inside a list."""

    __slots__ = ()
    __repr__ = str.__str__


def _shown(x: Any) -> Any:
    """Return x with the types of kernel values in their place."""
    if isinstance(x, Value):
        return _Words(describe(x.type))
    if isinstance(x, StructValue):
        return _Words(name_of(x))
    if type(x) is dict:
        return {key: _shown(item) for key, item in x.items()}
    return type(x)(map(_shown, x)) if type(x) in (list, tuple) else x


def _static_print(cx: Context, *args: Any, **options: Any) -> None:
    compile_time.static_print(*map(_shown, args), **options)


def _static_assert(cx: Context, cond: Any, msg: Any = None) -> None:
    check_constants(cx, [cond])
    if not cond:
        raise cx.fail(f"static assertion failed{f': {msg}' if msg else ''}", kind=CompilationError)


def _same(cx: Context, val: Any, *hints: Any) -> Any:
    return val


def _do_while(cx: Context, *args: Any) -> None:
    raise cx.fail(
        "ti.graph.do_while is the condition of a `while` at the top level of a kernel with "
        "graph=True",
        help="write @ti.kernel(graph=True), and `while ti.graph.do_while(flag):` around its loops",
    )


def _nothing(cx: Context, *hints: Any) -> None:
    return None


def _ndrange(cx: Context, *args: Any, axes: Any = None) -> ndrange:
    plain = [kind_of(x).load(cx, x) for x in args]
    check_constants(cx, [axes])
    try:
        made = ndrange(*plain, axes=axes)
    except CompilationError as e:
        raise cx.fail(e.sentence, kind=type(e), help=e.help) from None
    for begin, end in made.bounds:
        for bound in (begin, end):
            if isinstance(bound, Value) and scalar_of(bound.type).kind == "f":
                raise cx.fail("ndrange takes integers", kind=KernelCallError)
    return made


# --- the table ---------------------------------------------------------------------------------

_HANDLERS: dict[object, Handler] = {
    matrix.Matrix: make_matrix,
    matrix.Vector: make_matrix,
    matrix.pack: make_matrix,
    matrix.zero: make_zero,
    matrix.one: make_one,
    matrix.identity: make_identity,
    matrix.diag: make_diag,
    matrix.unit: make_unit,
    matrix.rows: make_rows,
    matrix.cols: make_cols,
    compile_time.static_print: _static_print,
    compile_time.static_assert: _static_assert,
    compile_time.assume_in_range: _same,
    compile_time.block_local: _nothing,
    compile_time.do_while: _do_while,
    compile_time.cache_read_only: _nothing,
    Struct: make_record,
    ndrange: _ndrange,
    **elementwise_calls.ELEMENTWISE,
    **builtins.BUILTINS,
}


def _composites() -> list[Function]:
    return [x for x in vars(math).values() if isinstance(x, Function) and x.is_composite]


CALLS.update({fn: CallHandler(handler) for fn, handler in _HANDLERS.items()})
CALLS.update({fn: CallHandler(handler, takes_fields=True) for fn, handler in FORMS.items()})
CALLS.update({fn: CallHandler(traced(fn.python)) for fn in _composites()})
CALLS.update({fn: CallHandler(atomic(fn), frozenset({0, "x"})) for fn in atomic_functions.ATOMICS})
