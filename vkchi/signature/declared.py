"""Fast replacement for `inspect.signature` on plain functions.

>>> [p.name for p in declared_parameters(lambda a, b=2: a)]
['a', 'b']
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from vkchi.tuples import NamedTuple

VARARGS, VARKEYWORDS = 0x4, 0x8  # bits of `co_flags`
WRAPPED = ("__wrapped__", "__signature__")  # attributes that declare another signature


class MissingAnnotation:
    """Marker of a missing annotation."""


class DeclaredParameter(NamedTuple):
    """A parameter; `kind` is `usual`, `keyword` (keyword-only), `*` or `**`."""

    name: str
    annotation: Any
    kind: str = "usual"


def declared_parameters(fn: FunctionType) -> list[DeclaredParameter]:
    if any(hasattr(fn, name) for name in WRAPPED):
        return inspected_parameters(fn)
    code, notes = fn.__code__, fn.__annotations__
    usual, keywords = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    kinds = ["usual"] * usual
    order = list(names[:usual])
    at = usual + keywords
    if code.co_flags & VARARGS:
        order.append(names[at])
        kinds.append("*")
        at += 1
    order += names[usual : usual + keywords]
    kinds += ["keyword"] * keywords
    if code.co_flags & VARKEYWORDS:
        order.append(names[at])
        kinds.append("**")
    return [
        DeclaredParameter(name, notes.get(name, MissingAnnotation), kind)
        for name, kind in zip(order, kinds)
    ]


def inspected_parameters(fn: FunctionType) -> list[DeclaredParameter]:
    """The parameters by `inspect`, for a function that declares the signature of another one."""
    import inspect

    kinds: dict[Any, str] = {
        inspect.Parameter.KEYWORD_ONLY: "keyword", inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }  # fmt: skip
    return [
        DeclaredParameter(p.name, MissingAnnotation if p.annotation is p.empty else p.annotation,
                 kinds.get(p.kind, "usual"))
        for p in inspect.signature(fn).parameters.values()
    ]  # fmt: skip
