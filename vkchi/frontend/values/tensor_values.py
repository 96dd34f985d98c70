"""Vectors and matrices: their attributes and components, and vectors as indices."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from vkchi.errors import KernelIndexError, KernelNameError, KernelSyntaxError, nearest_name
from vkchi.frontend.calls.tables import CALLS, METHODS
from vkchi.frontend.context import Lowering
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.conversions import coerce
from vkchi.frontend.ops.debug_checks import guard_component, watch_atomic
from vkchi.frontend.ops.tensor_attributes import component_indices, find_attribute
from vkchi.frontend.state.pending import UNNAMED, ConversionTarget
from vkchi.frontend.state.scope import CHANGING, Var
from vkchi.frontend.values.kinds import (
    Kind,
    all_but,
    describe,
    is_static,
    kind_of,
    name_of,
)
from vkchi.frontend.values.operands import ConstantKind, WeakNumbers
from vkchi.frontend.values.references import Assignable, Merge
from vkchi.frontend.values.targets import (
    Component,
    ComponentsTarget,
    ItemTarget,
    VariableTarget,
    assign_variable,
    check_index_type,
    extract,
)
from vkchi.frontend.values.texts import Part, ReplacementField, print_parts
from vkchi.ir.core import Op, Param, Result, Value
from vkchi.lang.matrix import Matrix, Vector
from vkchi.types import Array, Scalar, Tensor, i32, scalar_of, shape_of, with_shape

# Augmented operator -> atomic op.
_ATOMIC = {
    "+": "atomic_add", "-": "atomic_add", "&": "atomic_and", "|": "atomic_or", "^": "atomic_xor",
}  # fmt: skip
_ON_BITS = ("&", "|", "^")
_NUMBERS = {"f": float, "i": int, "u": int, "b": bool}


class TensorKind(Kind):
    """Vectors, matrices and numbers in kernels."""

    has_type = is_deferred = True

    def peek(self, x: Any, name: str) -> None:
        return None

    def attr(self, cx: Any, x: Any, name: str, slot: Any) -> Any:
        return tensor_attribute(cx, x if slot is None else slot, name)

    def item(self, cx: Any, x: Any, indices: list[Any], slot: Any) -> Any:
        return tensor_item(cx, x if slot is None else slot, indices)

    def method(self, cx: Any, x: Any, name: str, n: ast.Call) -> Any:
        """Lower a method in METHODS, or one of an operator, such as `__mod__`.

        Raises KernelNameError for other names.
        """
        v = operator_lowering.value(cx, x)
        if name not in METHODS:
            return operator_method(cx, v, name, n)
        args, kwargs = cx.tables.arguments(cx, n)
        return METHODS[name](cx, v, *args, **kwargs)


class ValueKind(TensorKind, of=[Op, Param, Result, Value]):
    """Kernel values: `helps` are those of scalars."""

    helps = all_but(
        "number", "truth", "compare", "print",
        loop="did you mean range(...)?", items="did you mean range(...)?",
        search="compare it with `==`",
    )  # fmt: skip
    tensor_helps = {"call": "", "search": "write (v == x).any()"}

    def helps_of(self, x: Any) -> Mapping[str, str]:
        return self.tensor_helps if shape_of(x.type) else self.helps

    def name(self, x: Any) -> str:
        return f"a {describe(x.type)}" if isinstance(x.type, Scalar | Tensor) else f"an {x.type}"

    def operand(self, cx: Any, x: Any) -> Value:
        return x  # type: ignore[no-any-return]

    def join(self, merge: Merge, a: Any, b: Any, name: str) -> Any:
        return merge.numbers(a, b, name)

    def leaves(self, x: Any) -> list[Value]:
        return [x]

    def refill(self, x: Any, values: Iterator[Value]) -> Value:
        return next(values)

    def fit(self, cx: Any, old: Any, x: Any, name: str, into: ConversionTarget) -> Value:
        v = coerce(cx, x, old.type, name, into=into)
        v.name = v.name or name
        return v

    def items(self, cx: Any, x: Any, use: str) -> list[Any]:
        """Return the components of a vector, or the rows of a matrix."""
        parts = operator_lowering.components(cx, x)
        if len(x.type.shape) == 1:
            return parts
        width = x.type.shape[1]
        rows = range(0, len(parts), width)
        return [operator_lowering.value(cx, parts[k : k + width]) for k in rows]

    def component(self, cx: Any, x: Any, index: Component) -> Value:
        return extract(cx, x, index)

    def indices(self, cx: Any, x: Any) -> list[Any]:
        is_vector = len(shape_of(x.type)) == 1
        return operator_lowering.components(cx, x) if is_vector else [x]

    def shown(self, cx: Any, x: Any) -> list[Part]:
        return [ReplacementField(x)]

    def truth(self, cx: Any, x: Any) -> Value:
        return operator_lowering.as_condition(cx, x)

    def length(self, cx: Any, x: Any) -> int:
        return int(x.type.n)

    def class_of(self, x: Any) -> type:
        """Return Vector, Matrix, float, int or bool."""
        rank = len(shape_of(x.type))
        return (Vector, Matrix)[rank - 1] if rank else _NUMBERS.get(x.type.kind, type(x))


class TargetKind(TensorKind, of=[Assignable]):
    """Targets: a component of one is again a Target."""

    is_target = True

    def load(self, cx: Any, x: Any) -> Any:
        return x.load(cx)

    operand = load

    def component(self, cx: Any, x: Any, index: Component) -> Any:
        return x.component(cx, index)

    def fit(self, cx: Any, old: Any, x: Any, name: str, into: ConversionTarget) -> Any:
        old.store(cx, coerce(cx, x, old.type, into=into))
        return old

    def update(self, cx: Any, x: Any, op: str, value: Any, into: ConversionTarget) -> None:
        """Lower `x op= value`: `+ - & | ^` are atomic on memory that other invocations may access.

        Exceptions are `+ -` of bools. Otherwise it is a read, an op and a write.
        """
        kind = _ATOMIC.get(op)
        if kind is None or scalar_of(x.type).kind == ("f" if op in _ON_BITS else "b"):
            self.fit(cx, x, operator_lowering.binary(cx, op, x.load(cx), value), "item", UNNAMED)
            return
        v = coerce(cx, value, x.type, into.name, into=into)
        if x.is_shared(cx):
            old = x.atomic(cx, kind, cx.b.emit("neg", v) if op == "-" else v)
            if cx.options.debug:
                watch_atomic(cx, op, old, v)
        else:
            self.fit(cx, x, operator_lowering.binary(cx, op, x.load(cx), v), "item", UNNAMED)

    def roots(self, x: Any) -> list[Var]:
        return x.roots  # type: ignore[no-any-return]


class VariableKind(TargetKind, of=[VariableTarget]):
    def held(self, x: Any) -> Any:
        return x.get()

    def fit(self, cx: Any, old: Any, x: Any, name: str, into: ConversionTarget) -> Any:
        assign_variable(cx, old.var, x)
        return old

    def is_rebound(self, cx: Any, x: Any) -> bool:
        """True if an assignment may change the variable's type: a variable of a plain function."""
        return bool(cx.act.is_plain and x.var.kind in CHANGING)

    def update(self, cx: Any, x: Any, op: str, value: Any, into: ConversionTarget) -> None:
        held = x.get()
        if isinstance(held, Value) and not self.is_rebound(cx, x):
            super().update(cx, x, op, value, into)
        else:
            self.fit(cx, x, operator_lowering.operate(cx, op, held, value), "item", UNNAMED)


class ItemKind(VariableKind, of=[ItemTarget]):
    def is_rebound(self, cx: Any, x: Any) -> bool:
        return False

    def fit(self, cx: Any, old: Any, x: Any, name: str, into: ConversionTarget) -> Any:
        held = old.get()
        found = kind_of(held)
        new = found.fit(cx, held, x, old.key if isinstance(old.key, str) else name, into)
        if not found.is_assignable(held):
            old.put(cx, new)
        return old


class MatrixKind(ConstantKind, of=[Matrix]):
    """Constant vectors and matrices."""

    def weak(self, x: Any) -> WeakNumbers:
        letter = x.entries.dtype.kind.replace("u", "i")
        return WeakNumbers(x.entries, letter, x.entries.shape, x.dt)

    def item(self, cx: Any, x: Any, indices: list[Any], slot: Any) -> Any:
        if all(map(is_static, indices)):
            return NotImplemented
        return tensor_item(cx, operator_lowering.value(cx, x), indices)

    def items(self, cx: Any, x: Any, use: str) -> list[Any]:
        return list(x.to_list())

    def indices(self, cx: Any, x: Any) -> list[Any]:
        return list(x.to_list())

    def shown(self, cx: Any, x: Any) -> list[Part]:
        return print_parts(cx, x.to_list())

    def method(self, cx: Any, x: Any, name: str, n: ast.Call) -> Any:
        if name not in METHODS:
            return NotImplemented
        args, kwargs = cx.tables.arguments(cx, n)
        return constant_method(cx, type(x), name, [x, *args], kwargs)


# --- methods -------------------------------------------------------------------------------------


def constant_method(
    cx: Lowering, cls: type, name: str, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Call a method of constant vectors: at compile time, if all arguments are constants."""
    if is_static(args) and is_static(list(kwargs.values())):
        return cx.run_python(getattr(cls, name), args, kwargs)
    return METHODS[name](cx, operator_lowering.value(cx, args[0]), *args[1:], **kwargs)


_SPECIAL = operator_lowering.SPECIAL_METHODS | {
    "__abs__": (lambda cx, op, v: CALLS[abs].handler(cx, v), "", False)
}


def operator_method(cx: Any, v: Value, name: str, n: ast.Call) -> Any:
    """Lower a call of an operator's special method. Raises KernelNameError for other names."""
    if name not in _SPECIAL:
        close, known = nearest_name(name, METHODS), ", ".join(sorted(METHODS)[:6])
        raise cx.fail(
            f"a {describe(v.type)} has no method `{name}`",
            kind=KernelNameError,
            help=f"did you mean `{close}`?" if close else f"it has {known}, ...",
        )
    lower, op, is_reflected = _SPECIAL[name]
    takes_one = lower is operator_lowering.operate
    args, kwargs = cx.tables.arguments(cx, n)
    if kwargs or len(args) != takes_one:
        raise cx.fail(f"`{name}` takes {'one value' if takes_one else 'nothing'}")
    return lower(cx, op, *([*args, v] if is_reflected else [v, *args]))


# --- attributes ----------------------------------------------------------------------------------


def tensor_attribute(cx: Lowering, base: Any, name: str) -> Any:
    """Return components (`v.x`, `v.zy`) or a property such as `m.n`. Raises KernelNameError."""
    t = base.type
    places = component_indices(name, t)
    if places is not None and kind_of(base).is_target:
        return pick(cx, base, list(places), (len(places),) if len(places) > 1 else ())
    attribute = find_attribute(name)
    added = vars(Vector if len(shape_of(t)) == 1 else Matrix).get(name) or vars(Matrix).get(name)
    if attribute is None and isinstance(added, property) and shape_of(t):
        return cx.call(added.fget, (kind_of(base).load(cx, base),), {})
    if attribute is None:
        raise cx.fail(
            f"a {describe(t)} has no attribute `{name}`",
            kind=KernelNameError,
            help=f"it is a method: call it, .{name}()" if name in METHODS else _facts_of(t),
        )
    return attribute(cx, kind_of(base).load(cx, base))


def _facts_of(t: Any) -> str:
    return "it has x, y, z, w, n, m, shape" if shape_of(t) else "a number has none"


# --- indices -------------------------------------------------------------------------------------


def flatten_indices(cx: Lowering, indices: list[Any]) -> list[Any]:
    """Replace vectors, lists and tuples of indices (`ti.grouped`) by their components."""
    return [part for k in indices for part in kind_of(k).indices(cx, k)]


# --- vectors and matrices ------------------------------------------------------------------------


def tensor_item(cx: Lowering, base: Any, indices: list[Any]) -> Any:
    """Return a component; with slices, several components as a vector or matrix.

    Raises KernelTypeError for a scalar or an array, KernelIndexError for a wrong number of indices.
    """
    t = base.type
    if not isinstance(t, Tensor):
        what = "an array" if isinstance(t, Array) else f"a {describe(t)}"
        help = "a number has no items: write x instead of x[i]"
        raise cx.fail(f"{what} cannot be indexed", help=help)
    flat = ([k for k in indices if isinstance(k, slice)] and indices) or flatten_indices(
        cx, indices
    )
    if len(flat) != len(t.shape):
        raise cx.fail(
            f"a {describe(t)} needs {len(t.shape)} {'index' if t.m == 1 else 'indices'}, "
            f"{len(flat)} given",
            kind=KernelIndexError,
            help="for a row, write m[i, :]" if len(t.shape) == 2 else "",
        )
    axes = [axis_places(cx, k, extent, t) for k, extent in zip(flat, t.shape)]
    places = axes[0]
    if len(axes) == 2:
        places = [flat_place(cx, r, c, t.shape[1]) for r in axes[0] for c in axes[1]]
    shape = tuple(len(a) for a, k in zip(axes, flat) if isinstance(k, slice))
    return pick(cx, base, places, shape)


def axis_places(cx: Lowering, k: Any, extent: int, t: Tensor) -> list[Component]:
    """Return the component indices along one axis that an index or slice selects.

    Raises KernelIndexError for a constant out of range, KernelSyntaxError for a negative one,
    KernelTypeError for other objects than integers.
    """
    if isinstance(k, slice):
        return [*range(extent)[k]]
    if isinstance(k, Value):
        place = check_index_type(cx, k, "the index of a component")
        if cx.options.checks_indices:
            guard_component(cx, place, extent, t)
        return [place]
    if not isinstance(k, int):
        raise cx.fail("the index of a component must be an integer", label=name_of(k))
    if not 0 <= k < extent:
        raise cx.fail(
            f"index {k} is out of range for a {describe(t)}",
            kind=KernelSyntaxError if k < 0 else KernelIndexError,
            help=f"the last one is {extent - 1}" if k < 0 else "",
        )
    return [int(k)]


def flat_place(cx: Lowering, row: Component, col: Component, cols: int) -> Component:
    if isinstance(row, int) and isinstance(col, int):
        return row * cols + col
    b = cx.b  # not operator_lowering, which gives Python numbers the default type
    if isinstance(row, int):
        start: Value = b.const(row * cols, i32)
    else:
        start = b.emit("mul", row, b.const(cols, i32))
    return b.emit("add", start, b.const(col, i32) if isinstance(col, int) else col)


def pick(cx: Lowering, base: Any, places: list[Component], shape: tuple[int, ...]) -> Any:
    """Return components of a value or Target: one of them, or a vector or matrix of `shape`.

    Raises KernelIndexError for an empty slice.
    """
    parts = [kind_of(base).component(cx, base, k) for k in places]
    if not shape:
        return parts[0]
    t = with_shape(scalar_of(base.type), shape)
    assert isinstance(t, Tensor)
    if not places:
        raise cx.fail("this slice is empty", kind=KernelIndexError)
    is_target = kind_of(base).is_target
    return ComponentsTarget(parts, t) if is_target else cx.b.emit("pack", *parts, type=t)
