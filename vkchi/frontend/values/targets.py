"""Assignment targets other than memory: variables, list items, components of tensors.

Targets in memory are `references.MemoryTarget`; a component of one is again a MemoryTarget.

    MemoryTarget(ptr).component(cx, 2)            # MemoryTarget of ptr's third component
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelTypeError
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.state.identity import check_unshared_value
from vkchi.frontend.state.pending import UNNAMED, ConversionTarget
from vkchi.frontend.state.scope import CONSTANT, PASSED, SHARED, VARIABLE, Var
from vkchi.frontend.values.kinds import describe, kind_of, name_of
from vkchi.frontend.values.operands import is_number, operand, own_type
from vkchi.frontend.values.references import Assignable, Context, MemoryTarget, Target, emit_at
from vkchi.ir.builder import updated_value
from vkchi.ir.core import Op, Value
from vkchi.types import Scalar, Tensor, i32, scalar_of

if TYPE_CHECKING:
    from vkchi.frontend.context import Lowering

Component = int | Value  # row-major; a Value is i32


def apply_plainly(cx: Context, target: Target, kind: str, *values: Value) -> Value:
    """Read, combine and write without atomicity; return the old value."""
    old = target.load(cx)
    target.store(cx, updated_value(cx.b, kind, old, values))
    return old


class VariableTarget(Assignable):
    """A variable as a target that holds any compile-time value."""

    __slots__ = ("var",)

    def __init__(self, var: Var) -> None:
        self.var = var

    def get(self) -> Any:
        return self.var.value

    @property
    def roots(self) -> list[Var]:
        return [self.var]

    def component(self, cx: Context, index: Component) -> Target:
        return ComponentTarget(self, index)

    def put(self, cx: Any, x: Any) -> None:
        """Set the variable to x, which has the variable's types.

        Raises KernelSyntaxError if it cannot change.
        """
        lowering: Lowering = cx
        lowering.check_assignable(self.var)
        lowering.assign(self.var, x)

    @property
    def type(self) -> Scalar | Tensor:
        t: Scalar | Tensor = self.get().type
        return t

    def load(self, cx: Context) -> Value:
        """Return the variable's value; of a struct, the members read.

        Raises KernelTypeError for other objects.
        """
        held = self.get()
        found = kind_of(held)
        if not found.has_type and not found.is_struct:
            raise cx.fail(f"a variable is needed here, not {name_of(held)}", kind=KernelTypeError)
        return found.load(cx, held)  # type: ignore[no-any-return]

    def store(self, cx: Context, v: Value) -> None:
        self.put(cx, v)

    def atomic(self, cx: Context, kind: str, *values: Value) -> Value:
        return apply_plainly(cx, self, kind, *values)


def kind_of_variable(x: Any) -> str:
    """Return a new variable's kind: VARIABLE for kernel values and containers, else CONSTANT."""
    found = kind_of(x)
    return VARIABLE if found.has_type or found.is_container else CONSTANT


def assign_variable(cx: Lowering, var: Var, x: Any) -> None:
    """Assign x to a variable, converted to the types of its value.

    In its own region, a constant is rebound, and so is a variable of a plain Python function.
    Raises KernelSyntaxError for a variable that cannot change, KernelTypeError if x does not fit.
    """
    is_here, held = var.depth == len(cx.frames), kind_of(var.value)
    if var.kind == CONSTANT and is_here:
        var.value = kind_of(x).own(cx, x)
        var.kind = kind_of_variable(var.value)
        return
    if var.kind not in (PASSED, SHARED):  # these can be rebound
        cx.check_assignable(var)
    if held.is_target:
        held.fit(cx, var.value, x, var.name, into_variable(cx, var))
    elif cx.act.is_plain and is_here:
        var.value = kind_of(x).own(cx, x)
        var.kind = VARIABLE
    elif held.is_assignable(var.value):
        held.fit(cx, var.value, x, var.name, UNNAMED)
    else:
        if cx.act.is_plain:
            _refuse_narrowing(cx, var, x)
        cx.assign(var, held.fit(cx, var.value, x, var.name, into_variable(cx, var)))


def into_variable(cx: Lowering, var: Var) -> ConversionTarget:
    """Return the description of a variable, for cautions about conversions to it."""
    return ConversionTarget(f"`{var.name}`", name=var.name, origin=var.span, source=cx.act.source)


def _refuse_narrowing(cx: Lowering, var: Var, x: Any) -> None:
    """Check that a Python function's integer variable does not become a float in a branch or loop.

    The kernel's variable has one type there. Raises KernelTypeError.
    """
    if not is_number(var.value) or not is_number(x):
        return
    old, new = [scalar_of(own_type(cx, operand(cx, v))) for v in (var.value, x)]
    if old.kind in "iu" and new.kind == "f":
        raise cx.fail(
            f"`{var.name}` is an integer before this branch or loop, and a float in it",
            label=describe(new),
            help=f"begin with a float: {var.name} = 0.0",
        )


class ItemTarget(VariableTarget):
    """An item of a list, dict or struct that a variable (or another item) holds."""

    __slots__ = ("base", "key")

    def __init__(self, base: VariableTarget, key: Any) -> None:
        super().__init__(base.var)
        self.base, self.key = base, key

    def get(self) -> Any:
        return self.base.get()[self.key]

    def put(self, cx: Any, x: Any) -> None:
        held = self.base.get()
        self.base.put(cx, kind_of(held).with_item(cx, held, self.key, x))


class ComponentTarget(Assignable):
    """One component of a vector or matrix that is not one place in memory. Updates are atomic if
    each component is a place in memory."""

    __slots__ = ("base", "index", "type")

    def __init__(self, base: Target, index: Component) -> None:
        assert isinstance(base.type, Tensor)
        self.base, self.index, self.type = base, index, base.type.elem

    @property
    def roots(self) -> list[Var]:
        return self.base.roots

    def component(self, cx: Context, index: Component) -> Target:
        return ComponentTarget(self, index)

    def load(self, cx: Context) -> Value:
        return extract(cx, self.base.load(cx), self.index)

    def store(self, cx: Context, v: Value) -> None:
        if self.is_one_of_several:

            def put(part: Target) -> Value:
                part.store(cx, v)
                return v

            self._branch(cx, put)
            return
        whole = self.base.load(cx)
        if self.roots:
            check_unshared_value(cx, whole)  # type: ignore[arg-type]
        self.base.store(cx, emit_at(cx, "insert", whole, v, index=self.index))

    def atomic(self, cx: Context, kind: str, *values: Value) -> Value:
        if self.is_one_of_several:
            return self._branch(cx, lambda part: part.atomic(cx, kind, *values))
        return apply_plainly(cx, self, kind, *values)

    def is_shared(self, cx: Context) -> bool:
        return self.is_one_of_several and self.base.is_shared(cx)

    @property
    def is_one_of_several(self) -> bool:
        """True if the components have different places in memory."""
        return isinstance(self.base, ComponentsTarget) and not self.roots

    def _branch(self, cx: Context, act: Callable[[Target], Value]) -> Value:
        """Emit `act` for the component at the index, clamped, and return its result."""
        assert isinstance(self.base, ComponentsTarget) and isinstance(self.index, Value)
        *first, last = self.base.parts

        def of_rest(k: int) -> Value:
            if k == len(first):
                return act(last)
            assert isinstance(self.index, Value)
            is_it = cx.b.emit("le", self.index, cx.b.const(k, i32))
            with cx.b.region() as then:
                cx.b.emit("yield", act(first[k]))
            with cx.b.region() as orelse:
                cx.b.emit("yield", of_rest(k + 1))
            return cx.b.if_(is_it, then, orelse).results[0]

        return of_rest(0)


class ComponentsTarget(Assignable):
    """Several components as a vector: `v.xz`, a row of a matrix."""

    __slots__ = ("parts", "type")

    def __init__(self, parts: list[Target], t: Tensor) -> None:
        self.parts, self.type = parts, t

    @property
    def roots(self) -> list[Var]:
        return [var for part in self.parts for var in part.roots]

    def is_shared(self, cx: Context) -> bool:
        return all(part.is_shared(cx) for part in self.parts)

    def component(self, cx: Context, index: Component) -> Target:
        if isinstance(index, int):
            return self.parts[index]
        return member_of_parts(cx, self.parts, index) or ComponentTarget(self, index)

    def load(self, cx: Context) -> Value:
        return cx.b.emit("pack", *[part.load(cx) for part in self.parts], type=self.type)

    def store(self, cx: Context, v: Value) -> None:
        for part, component in zip(self.parts, operator_lowering.components(cx, v)):
            part.store(cx, component)

    def atomic(self, cx: Context, kind: str, *values: Value) -> Value:
        """Combine each component with those of the values; return the old ones."""
        each = zip(self.parts, *[operator_lowering.components(cx, v) for v in values])
        old = [part.atomic(cx, kind, *components) for part, *components in each]
        return cx.b.emit("pack", *old, type=self.type)


def extract(cx: Context, v: Value, index: Component) -> Value:
    if getattr(v, "kind", "") == "pack" and isinstance(index, int):
        found: Value = v.args[index]  # type: ignore[attr-defined]
        return found
    return emit_at(cx, "extract", v, index=index)


def member_of_parts(cx: Context, parts: list[Target], index: Value) -> Target | None:
    """Return the part at a computed index, clamped, as one place in memory. None if the parts are
    not members of one vector or matrix there."""
    places = [part for part in parts if isinstance(part, MemoryTarget)]
    members = [p.ptr for p in places if isinstance(p.ptr, Op) and p.ptr.kind == "member"]
    if len(members) < len(parts) or any(p.args != members[0].args for p in members):
        return None
    numbers = [cx.b.const(p.attr, i32) for p in members]
    number: Value = numbers.pop()
    for k in reversed(range(len(numbers))):
        is_before = cx.b.emit("le", index, cx.b.const(k, i32))
        number = cx.b.emit("select", is_before, numbers[k], number)
    return places[0].part(cx.b.emit("member_at", members[0].args[0], number))


def check_index_type(cx: Context, k: Value, what: str) -> Value:
    """Convert a component index to i32.

    Raises KernelTypeError if it is not a scalar integer or bool.
    """
    t = k.type
    if t.kind not in ("i", "u", "b"):
        raise cx.fail(
            f"{what} must be an integer",
            kind=KernelTypeError,
            label=describe(t),
            help="convert it: ti.cast(i, ti.i32)" if t.kind else "",
        )
    return k if t is i32 else operator_lowering.cast(cx, k, i32)
