"""Views of ndarrays as arguments: the kernel takes the base, and integers that locate the view.

Arguments with one base share one array parameter, so that analyses see all accesses to the memory.
The integers follow the kernel's own arguments.

    step(x[2:n], x)     # step(x, x, 2, n - 2): `SharedParameter` for the second x
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from vkchi.fields.storage import Storage
from vkchi.fields.views import View
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
        self._needs_grad = any(p.annotation.needs_grad for p in parameters)


def takes_view(parameter: Parameter, arg: Any) -> bool:
    """True for a view of an ndarray and an array parameter."""
    return parameter.kind == "array" and isinstance(arg, View) and isinstance(arg.base, Ndarray)


def form_of(parameters: Sequence[Parameter], args: Sequence[Any]) -> Form | None:
    """Return the form of a call; None if it has no views as array arguments.

    Raises ArgumentError if a parameter of such a view, or of its base, clamps indices, or if the
    argument does not fit the annotation.
    """
    pairs = list(zip(parameters, args, strict=True))
    views = [takes_view(p, arg) for p, arg in pairs]
    bases = {id(arg.base) for arg, is_view in zip(args, views) if is_view}
    if not bases:
        return None
    first: dict[int, int] = {}
    found: list[ViewForm | None] = []
    for k, ((p, arg), is_view) in enumerate(zip(pairs, views, strict=True)):
        base = arg.base if is_view else arg
        if not isinstance(p, ArrayParameter) or id(base) not in bases:
            found.append(None)
            continue
        if p.annotation.boundary == "clamp":
            raise p.refuse(
                'views of arrays are not supported with boundary="clamp"', "pass a copy of it"
            )
        p.check(arg.elem, len(arg.shape))
        axes = arg.form if is_view else [(k, 1, True) for k in range(len(arg.shape))]
        owner = first.setdefault(id(base), k)
        found.append(ViewForm(owner, tuple([ViewAxis(*axis) for axis in axes])))
    return tuple(found)


def key_of(args: Sequence[Any]) -> Hashable:
    """Return a key of the form of a call: calls with equal keys have equal forms."""
    first: dict[int, int] = {}
    found: list[Hashable] = []
    for k, arg in enumerate(args):
        if isinstance(arg, View):
            base = arg.base
            found.append((first.setdefault(id(base), k), type(base), arg.elem, arg.form))
        elif isinstance(arg, Storage):
            found.append((first.setdefault(id(arg), k), type(arg), arg.elem, len(arg.shape)))
        else:
            found.append(arg is None)
    return tuple(found)


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
            if isinstance(args[k], View):
                found[k] = args[k].base
                numbers += args[k].numbers
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
