"""Public functions say in their signatures what they take and give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import vkchi as ti

# What no type can say of these.
FREE = {
    "hex_to_rgb": "numbers or arrays of them, and the same comes back",
    "rgb_to_hex": "numbers or arrays of them, and the same comes back",
    "torch_op": "an operator of torch, or what makes one of a kernel",
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Those of `ti`, `ti.ad` and `ti.algorithms`, and what classes of `ti.ad` are made with."""
    for module in (ti, ti.ad, ti.algorithms):
        for name in dir(module):
            found = getattr(module, name, None) if not name.startswith("_") else None
            if inspect.isfunction(found) and found.__module__.startswith("vkchi"):
                yield name, found
            elif module is ti.ad and inspect.isclass(found):
                yield name, found.__init__


FUNCTIONS = dict(public_functions())


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - FREE.keys()))
def test_public_functions_say_their_types(name: str) -> None:
    signature = inspect.signature(FUNCTIONS[name])
    named = [
        p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    said = [str(p.annotation) for p in named] + [str(signature.return_annotation)]
    # what a callable of the user's takes and gives, and an array's dimensions, are free
    bare = [re.sub(r"(Callable|ndarray)\[(\[[^]]*\]|[^][]|\[[^]]*\])*\]", "", one) for one in said]
    assert not [one for one in bare if re.search(r"\bAny\b", one)], said


@pytest.mark.parametrize("name", ["MatrixFreeCG", "MatrixFreeBICGSTAB"])
def test_solvers_say_their_types(name: str) -> None:
    signature = inspect.signature(getattr(ti.linalg, name))
    assert "Any" not in str(signature)


def test_what_is_free_is_there() -> None:
    assert FREE.keys() <= FUNCTIONS.keys()
