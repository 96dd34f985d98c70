"""Views of ndarrays as arguments: the kernel takes the base, and integers that locate the view.

Arguments with one base share one array parameter, so that analyses see all accesses to the memory.
The integers follow the kernel's own arguments. Members of packs are arguments too.

    step(x[2:n], x)     # step(x, x, 2, n - 2): `SharedParameter` for the second x
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from vkchi.fields.storage import Storage
from vkchi.fields.views import View
from vkchi.frontend.argspec import ArgSpec, ViewAxis, ViewSpec
from vkchi.lang.argpack import ArgPack
from vkchi.ndarray import Ndarray
from vkchi.signature import ArrayParameter, Parameter, ScalarParameter
from vkchi.signature.signer import Signer
from vkchi.tuples import NamedTuple
from vkchi.types import i32, ndarray


class ViewForm(NamedTuple):
    """The part of an array argument that code depends on: the name of the first parameter whose
    argument has the same base, and the axes of the base."""

    owner: str
    axes: tuple[ViewAxis, ...]


Form = dict[str, ViewForm]  # by parameter; those of arguments that are passed as they are have none


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


def has_views(args: Sequence[Any]) -> bool:
    """True if an argument, or a member of a pack, is a view."""
    return any(
        [
            has_views(list(arg._entries.values()))
            if type(arg) is ArgPack
            else hasattr(type(arg), "__vkchi_view__")
            for arg in args
        ]
    )


def leaves_of(parameters: Sequence[Parameter], args: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the parameters with their arguments; of a pack those of its members."""
    for p, arg in zip(parameters, args, strict=True):
        if p.kind == "pack":
            for pair in p.pairs(arg):  # type: ignore[attr-defined]
                yield from leaves_of(*[[x] for x in pair])
        else:
            yield p, arg


def takes_view(parameter: Parameter, arg: Any) -> bool:
    """True for a view of an ndarray and an array parameter."""
    return parameter.kind == "array" and isinstance(arg, View) and isinstance(arg.base, Ndarray)


def form_of(parameters: Sequence[Parameter], args: Sequence[Any]) -> Form:
    """Return the form of a call; it is empty if it has no views as array arguments.

    Raises ArgumentError if a parameter of such a view, or of its base, clamps indices, or if the
    argument does not fit the annotation.
    """
    pairs = list(leaves_of(parameters, args))
    views = [takes_view(p, arg) for p, arg in pairs]
    bases = {id(arg.base) for (_, arg), is_view in zip(pairs, views) if is_view}
    first: dict[int, str] = {}
    found: Form = {}
    for (p, arg), is_view in zip(pairs, views, strict=True):
        base = arg.base if is_view else arg
        if not isinstance(p, ArrayParameter) or id(base) not in bases:
            continue
        if p.annotation.boundary == "clamp":
            raise p.refuse(
                'views of arrays are not supported with boundary="clamp"', "pass a copy of it"
            )
        p.check(arg.elem, len(arg.shape))
        axes = arg.form if is_view else [(k, 1, True) for k in range(len(arg.shape))]
        owner = first.setdefault(id(base), p.name)
        found[p.name] = ViewForm(owner, tuple([ViewAxis(*axis) for axis in axes]))
    return found


def key_of(args: Sequence[Any]) -> Hashable:
    """Return a key of the form of a call: calls with equal keys have equal forms."""
    first: dict[int, int] = {}

    def key(arg: Any) -> Hashable:
        if isinstance(arg, View):
            base = arg.base
            return first.setdefault(id(base), len(first)), type(base), arg.elem, arg.form
        if isinstance(arg, Storage):
            return first.setdefault(id(arg), len(first)), type(arg), arg.elem, len(arg.shape)
        if type(arg) is ArgPack:
            return arg.__vkchi_type__, tuple([key(x) for x in arg._entries.values()])
        return arg is None

    return tuple([key(arg) for arg in args])


class ViewSigner(Signer):
    """Signer of calls of one form: parameters with bases, and integers behind them.

    `expand` returns the arguments for these parameters.
    """

    def __init__(self, parameters: Sequence[Parameter], args: Sequence[Any], form: Form) -> None:
        self.form, self.own = form, list(parameters)
        self._made: dict[str, Parameter] = {}
        self.numbers: dict[str, list[Parameter]] = {}
        leaves = [p for p, _ in leaves_of(parameters, args) if p.name in form]
        for p in leaves:
            view = form[p.name]
            if view.owner == p.name:
                sharing = [q for q in leaves if form[q.name].owner == p.name]
                self._made[p.name] = BaseParameter(sharing)
            else:
                self._made[p.name] = SharedParameter(p.name, None)
            count = sum(axis.arguments for axis in view.axes)
            self.numbers[p.name] = [ScalarParameter(f"{p.name}.{n}", i32) for n in range(count)]
        made = [self._based(p) for p in parameters]
        super().__init__([*made, *[p for each in self.numbers.values() for p in each]])
        self._open = {}

    def _based(self, p: Any) -> Any:
        if p.kind != "pack":
            return self._made.get(p.name, p)
        made = copy.copy(p)
        made.members = {name: self._based(member) for name, member in p.members.items()}
        return made

    def expand(self, args: Sequence[Any]) -> tuple[Any, ...]:
        numbers: list[int] = []
        found = [self._base(p, arg, numbers) for p, arg in zip(self.own, args)]
        return (*found, *numbers)

    def _base(self, p: Any, arg: Any, numbers: list[int]) -> Any:
        """The argument for a changed parameter; `numbers` are appended."""
        if p.kind == "pack":
            parts = {
                name: self._base(member, part, numbers)
                for name, (member, part) in zip(p.members, p.pairs(arg), strict=True)
            }
            is_same = all(parts[name] is x for name, x in arg.items)
            return arg if is_same else ArgPack(p.type, parts)
        if p.name in self.form and isinstance(arg, View):
            numbers += arg.numbers
            return arg.base
        return arg

    def specs(self, args: tuple[Any, ...], key: tuple[Any, ...]) -> tuple[ArgSpec, ...]:
        flat = super().specs(args, key)
        numbers = iter(flat[len(self.own) :])
        of_views = {name: tuple([next(numbers) for _ in n]) for name, n in self.numbers.items()}
        return tuple([self._viewed(spec, of_views) for spec in flat[: len(self.own)]])

    def _viewed(self, spec: ArgSpec, numbers: dict[str, tuple[ArgSpec, ...]]) -> ArgSpec:
        if spec.kind == "pack":
            return spec._replace(value=tuple([self._viewed(m, numbers) for m in spec.value]))
        view = self.form.get(spec.name)
        if view is None:
            return spec
        base = spec if view.owner == spec.name else None
        value = ViewSpec(view.owner, base, view.axes, numbers[spec.name])
        return ArgSpec(spec.name, "view", None, value)
