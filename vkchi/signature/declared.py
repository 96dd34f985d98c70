"""What a function's own `def` says of its parameters.

Owns: `declared`, which is what `inspect.signature` would say of a plain function, without loading
that and the parsers that it loads, 7 ms of a program's start. Must not know: kernels.

    >>> [p.name for p in declared(lambda a, b=2: a)]
    ['a', 'b']
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from vkchi.tuples import NamedTuple

VARARGS, VARKEYWORDS = 0x4, 0x8  # of `co_flags`
WRAPPED = ("__wrapped__", "__signature__")  # attributes that say that a signature is another's


class Empty:
    """What stands for an annotation that is not there."""


class Declared(NamedTuple):
    """A parameter; `kind` is `usual`, `keyword` for one that is given by name only, `*` or `**`."""

    name: str
    annotation: Any
    kind: str = "usual"


def declared(fn: FunctionType) -> list[Declared]:
    """The parameters of a function, in order."""
    if any(hasattr(fn, name) for name in WRAPPED):
        return inspected(fn)
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
    return [Declared(name, notes.get(name, Empty), kind) for name, kind in zip(order, kinds)]


def inspected(fn: FunctionType) -> list[Declared]:
    """The same of a function that says that its signature is another one's."""
    import inspect

    kinds: dict[Any, str] = {
        inspect.Parameter.KEYWORD_ONLY: "keyword", inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }  # fmt: skip
    return [
        Declared(p.name, Empty if p.annotation is p.empty else p.annotation,
                 kinds.get(p.kind, "usual"))
        for p in inspect.signature(fn).parameters.values()
    ]  # fmt: skip
