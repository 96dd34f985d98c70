"""Views of ndarrays as arguments: the kernel takes the base, and integers that locate the view.

Arguments with one base share one array parameter, so that analyses see all accesses to the memory.
The integers follow the kernel's own arguments.

    step(x[2:n], x)     # step(x, x, 2, n - 2): `SharedParameter` for the second x
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.fields.views import Run, View, whole_axes
from vkchi.frontend.argspec import ArgSpec, ViewAxis, ViewSpec
from vkchi.ndarray import Ndarray
from vkchi.signature import ArrayParameter, Parameter, ScalarParameter
from vkchi.signature.signer import Signer
from vkchi.tuples import NamedTuple
from vkchi.types import i32, ndarray


class ViewForm(NamedTuple):
    """The part of an array argument that code depends on: the position of the first argument with
    the same base, and the axes of the base."""

    owner: int
    axes: tuple[ViewAxis, ...]


Form = tuple[ViewForm | None, ...]  # per parameter; None for arguments that are passed as they are


class SharedParameter(Parameter):
    """An argument whose base is that of an earlier one, which binds it."""

    kind = "shared"


class BaseParameter(ArrayParameter):
    """The base of one view or several. The annotation is that of the first, except for the number
    of axes. The base is constant if all are."""

    def __init__(self, parameters: Sequence[ArrayParameter]) -> None:
        parameter = parameters[0]
        note = parameter.annotation
        whole = ndarray(
            note.dtype, None, needs_grad=note.needs_grad, boundary=note.boundary,
            element_dim=note.element_dim, element_shape=note.element_shape,
        )  # fmt: skip
        super().__init__(parameter.name, whole)
        self.is_constant = all(p.is_constant for p in parameters)


def takes_view(parameter: Parameter, arg: Any) -> bool:
    """True for a view of an ndarray and an array parameter. Raises ArgumentError if that clamps
    indices, or if the view does not fit its annotation."""
    if not isinstance(arg, View) or parameter.kind != "array" or not isinstance(arg.base, Ndarray):
        return False
    assert isinstance(parameter, ArrayParameter)
    if parameter.annotation.boundary == "clamp":
        raise parameter.refuse(
            'views of arrays are not supported with boundary="clamp"', "pass a copy of it"
        )
    check_whole(parameter, arg, arg.base)
    return True


def check_whole(parameter: ArrayParameter, arg: Any, base: Ndarray) -> None:
    """Raise ArgumentError if an array does not fit the annotation of a parameter."""
    parameter.check(arg.elem, len(arg.shape))
    if parameter.annotation.needs_grad and base.grad is None:
        raise parameter.refuse("an array with a gradient is needed: make it with needs_grad=True")


def form_of(parameters: Sequence[Parameter], args: Sequence[Any]) -> Form | None:
    """Return the form of a call; None if it has no views as array arguments."""
    pairs = list(zip(parameters, args, strict=True))
    views = [takes_view(p, arg) for p, arg in pairs]
    if not any(views):
        return None
    bases = {id(arg.base) for arg, is_view in zip(args, views) if is_view}
    first: dict[int, int] = {}
    found: list[ViewForm | None] = []
    for k, (p, arg) in enumerate(pairs):
        base = arg.base if views[k] else arg
        if not views[k] and (id(arg) not in bases or p.kind != "array"):
            found.append(None)
            continue
        if not views[k]:
            assert isinstance(p, ArrayParameter)
            if p.annotation.boundary == "clamp":
                raise p.refuse("the call also takes a view of this array", "pass a copy of it")
            check_whole(p, arg, arg)
        owner = first.setdefault(id(base), k)
        _, axes = whole_axes(arg)
        found.append(ViewForm(owner, tuple(map(axis_of, axes, base.shape))))
    return tuple(found)


def axis_of(axis: int | Run, extent: int) -> ViewAxis:
    if isinstance(axis, int):
        return ViewAxis(-1, 0, is_whole=False)
    return ViewAxis(axis.axis, axis.step, is_whole=axis[:3] == (0, 1, extent))


class ViewSigner(Signer):
    """Signer of calls of one form: parameters with bases, and integers behind them.

    `expand` returns the arguments for these parameters.
    """

    def __init__(self, parameters: Sequence[Parameter], form: Form) -> None:
        self.form, self.own = form, list(parameters)
        made, self.numbers = list(parameters), dict[int, list[Parameter]]()
        for k, (p, view) in enumerate(zip(parameters, form, strict=True)):
            if view is None:
                continue
            if view.owner == k:
                sharing = zip(parameters, form, strict=True)
                made[k] = BaseParameter(
                    [q for q, other in sharing
                     if other is not None and other.owner == k and isinstance(q, ArrayParameter)]
                )  # fmt: skip
            else:
                made[k] = SharedParameter(p.name, None)
            count = sum(axis.arguments for axis in view.axes)
            self.numbers[k] = [ScalarParameter(f"{p.name}.{n}", i32) for n in range(count)]
        super().__init__([*made, *[p for each in self.numbers.values() for p in each]])
        self._open = {}

    def expand(self, args: Sequence[Any]) -> tuple[Any, ...]:
        found, numbers = list(args), list[int]()
        for k in self.numbers:
            view = self.form[k]
            assert view is not None
            found[k], axes = whole_axes(args[k])
            for axis, form in zip(axes, view.axes, strict=True):
                if isinstance(axis, int):
                    numbers.append(axis)
                elif not form.is_whole:
                    numbers += (axis.begin, axis.length)
        return (*found, *numbers)

    def specs(self, args: tuple[Any, ...], key: tuple[Any, ...]) -> tuple[ArgSpec, ...]:
        flat = super().specs(args, key)
        found = list(flat[: len(self.own)])
        numbers = iter(flat[len(self.own) :])
        for k, each in self.numbers.items():
            view, p = self.form[k], self.own[k]
            assert view is not None
            base = found[k] if view.owner == k else None
            members = tuple([next(numbers) for _ in each])
            spec = ViewSpec(self.own[view.owner].name, base, view.axes, members)
            found[k] = ArgSpec(p.name, "view", None, spec)
        return tuple(found)
