"""Assignment targets other than memory: variables, list items, components of tensors.

Targets in memory are `references.MemoryTarget`; a component of one is again a MemoryTarget.

    MemoryTarget(ptr).component(cx, 2)            # MemoryTarget of ptr's third component
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelTypeError
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.state.identity import check_unshared, check_unshared_value
from vkchi.frontend.state.scope import Var
from vkchi.frontend.values.kinds import describe, name_of
from vkchi.frontend.values.references import Assignable, Context, MemoryTarget, Target
from vkchi.frontend.values.trees import StructValue
from vkchi.ir.core import Op, Value
from vkchi.ir.ops import ATOMICS
from vkchi.types import Scalar, Tensor, i32

if TYPE_CHECKING:
    from vkchi.frontend.context import Lowering

Component = int | Value  # row-major; a Value is i32


def apply_plainly(cx: Context, target: Target, kind: str, v: Value) -> Value:
    """Read, combine and write without atomicity; return the old value."""
    old = target.load(cx)
    target.store(cx, cx.b.emit(ATOMICS[kind].combine, old, v))
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
        if isinstance(held, StructValue):
            return cx.read_all(held)  # type: ignore[attr-defined,no-any-return]
        if not isinstance(held, Value):
            raise cx.fail(f"a variable is needed here, not {name_of(held)}", kind=KernelTypeError)
        return held

    def store(self, cx: Context, v: Value) -> None:
        self.put(cx, v)

    def atomic(self, cx: Context, kind: str, v: Value) -> Value:
        return apply_plainly(cx, self, kind, v)


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
        if isinstance(held, tuple):
            raise cx.fail(
                "items of a tuple cannot be assigned",
                kind=KernelTypeError,
                help="make it a list: [...]",
            )
        if isinstance(held, StructValue):
            check_unshared(cx, held)
        new = held.copy()
        new[self.key] = x
        self.base.put(cx, new)


class ComponentTarget(Assignable):
    """One component of a vector or matrix that is not one place in memory; never atomic."""

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
        if isinstance(self.base, ComponentsTarget) and not self.roots:
            raise cx.fail(
                "components of this array have no common place in memory for a computed index",
                help="index the vector itself, as in `x[i][k]`",
            )
        whole = self.base.load(cx)
        if isinstance(self.base, VariableTarget):
            check_unshared_value(cx, whole)  # type: ignore[arg-type]
        if isinstance(self.index, int):
            new = cx.b.emit("insert", whole, v, attr=self.index)
        else:
            new = cx.b.emit("insert_at", whole, v, self.index)
        self.base.store(cx, new)

    def atomic(self, cx: Context, kind: str, v: Value) -> Value:
        return apply_plainly(cx, self, kind, v)


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

    def atomic(self, cx: Context, kind: str, v: Value) -> Value:
        """Combine each component with that of v; return the old ones."""
        pairs = zip(self.parts, operator_lowering.components(cx, v))
        old = [part.atomic(cx, kind, component) for part, component in pairs]
        return cx.b.emit("pack", *old, type=self.type)


def extract(cx: Context, v: Value, index: Component) -> Value:
    if not isinstance(index, int):
        return cx.b.emit("extract_at", v, index)
    if getattr(v, "kind", "") == "pack":
        found: Value = v.args[index]  # type: ignore[attr-defined]
        return found
    return cx.b.emit("extract", v, attr=index)


def member_of_parts(cx: Context, parts: list[Target], index: Value) -> Target | None:
    """Return the part at a computed index, clamped, as one place in memory. None if the parts are
    not members of one vector or matrix there."""
    members = [part.ptr for part in parts if isinstance(part, MemoryTarget)]
    first = members[0] if len(members) == len(parts) else None
    if not isinstance(first, Op) or not isinstance(parts[0], MemoryTarget):
        return None
    if any(p.kind != "member" or p.args != first.args for p in members if isinstance(p, Op)):
        return None
    numbers = [cx.b.const(p.attr, i32) for p in members if isinstance(p, Op)]
    number: Value = numbers.pop()
    for k in reversed(range(len(numbers))):
        is_before = cx.b.emit("le", index, cx.b.const(k, i32))
        number = cx.b.emit("select", is_before, numbers[k], number)
    return parts[0].part(cx.b.emit("member_at", first.args[0], number))


def check_index_type(cx: Context, k: Value, what: str) -> Value:
    """Convert a component index to i32.

    Raises KernelTypeError if it is not a scalar integer or bool.
    """
    t = k.type
    if not isinstance(t, Scalar) or t.kind not in "iub":
        raise cx.fail(
            f"{what} must be an integer",
            kind=KernelTypeError,
            label=describe(t),
            help="convert it: ti.cast(i, ti.i32)" if isinstance(t, Scalar) else "",
        )
    return k if t is i32 else operator_lowering.cast(cx, k, i32)
