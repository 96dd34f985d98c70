"""Signatures of public functions are annotated."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import vkchi as ti

CLASSES = (
    ti.linalg.SparseMatrix, ti.linalg.SparseMatrixBuilder, ti.linalg.SparseSolver,
    ti.linalg.SparseCG, ti.linalg.MatrixFreeCG, ti.linalg.MatrixFreeBICGSTAB, ti.tools.PLYWriter,
    ti.types.ndarray, ti.types.template,
)  # fmt: skip


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Those of `ti` and its modules, constructors of `ti.ad`, methods of CLASSES."""
    for cls in CLASSES:
        for name, found in vars(cls).items():
            if inspect.isfunction(found) and (name == "__init__" or not name.startswith("_")):
                yield f"{cls.__name__}.{name}", found
    yield from ((name, getattr(ti.types, name)) for name in ("vector", "matrix", "struct"))
    for module in (ti, ti.ad, ti.algorithms):
        for name in dir(module):
            found = getattr(module, name, None) if not name.startswith("_") else None
            if inspect.isfunction(found) and found.__module__.startswith("vkchi"):
                yield name, found
            elif module is ti.ad and inspect.isclass(found):
                yield name, found.__init__


FUNCTIONS = dict(public_functions())


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_public_functions_say_their_types(name: str) -> None:
    signature = inspect.signature(FUNCTIONS[name])
    named = [
        p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    said = [str(p.annotation) for p in named] + [str(signature.return_annotation)]
    # signatures of the user's callables, and an array's dimensions, are free
    bare = [re.sub(r"(Callable|ndarray)\[(\[[^]]*\]|[^][]|\[[^]]*\])*\]", "", one) for one in said]
    assert not [one for one in bare if re.search(r"\bAny\b", one)], said
