"""Golden programs: Python files that use the public names, run without a device.

`ti.field` and the like make the stand-ins of kernels.py while a program is executed. Its kernels
are lowered for arguments that fit their annotations, with the program's own `OPTIONS`, if any.

    for name, make in kernels_of(path):
        lowered = make()
"""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest import mock

import numpy as np

import vkchi as ti
from tests.unit.kernels import Field, lower
from vkchi.frontend.calls.inline import annotations_of
from vkchi.frontend.lowering import Lowered
from vkchi.frontend.syntax.source import source_of
from vkchi.types import Scalar, Tensor, cook, ndarray, scalar_of, shape_of

ROOT = Path(__file__).parents[2]


def make_field(dtype: Any, shape: Any = (), needs_grad: bool = False, **options: Any) -> Field:
    """Stand-in for `ti.field`."""
    t = cook(dtype)
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    zeros = partial(np.zeros, (*extents, *shape_of(t)), scalar_of(t).dtype)
    made = Field(zeros(), element_axes=len(shape_of(t)), offset=options.get("offset", ()))
    if needs_grad:
        made.grad = Field(zeros(), element_axes=len(shape_of(t)))
    return made


def make_vector_field(n: int, dtype: Any, shape: Any = (), **options: Any) -> Field:
    """Stand-in for `ti.Vector.field`."""
    return make_field(Tensor.of(cook(dtype), (n,)), shape, **options)


def make_matrix_field(n: int, m: int, dtype: Any, shape: Any = (), **options: Any) -> Field:
    """Stand-in for `ti.Matrix.field`."""
    return make_field(Tensor.of(cook(dtype), (n, m)), shape, **options)


@contextmanager
def stand_ins() -> Iterator[None]:
    """Context manager in which `ti.field` and its vector and matrix forms need no device."""
    with (
        mock.patch.object(ti, "field", make_field),
        mock.patch.object(ti.Vector, "field", make_vector_field),
        mock.patch.object(ti.Matrix, "field", make_matrix_field),
    ):
        yield


def execute(path: Path) -> dict[str, Any]:
    """Execute a program, and return its globals; its file name is its path in the repository."""
    text, file = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {"__name__": "program"}
    with stand_ins(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(compile(text, file, "exec", dont_inherit=True), names)
    return names


def argument_for(note: Any, names: dict[str, Any], name: str) -> Any:
    """An argument that fits an annotation: zeros for arrays, None for scalars and tensors.

    For templates it is the program's own `ARGUMENTS[name]`.
    """
    if note is ndarray or isinstance(note, ndarray):
        made = note if isinstance(note, ndarray) else ndarray()
        elem = made.dtype or ti.f32
        shape = (4,) * (made.ndim or 1) + shape_of(cook(elem))
        return np.zeros(shape, scalar_of(cook(elem)).dtype)
    if isinstance(cook(note), Scalar | Tensor):
        return None
    return names["ARGUMENTS"][name]


def kernels_of(path: Path) -> list[tuple[str, Callable[[], Lowered]]]:
    """(name, function that lowers it) of each kernel of a program."""
    names = execute(path)
    found = []
    for name, x in names.items():
        if getattr(x, "__vkchi_kind__", "") == "kernel":
            found.append((name, partial(_lower, x.__vkchi_func__, names)))
    return found


def _lower(fn: FunctionType, names: dict[str, Any]) -> Lowered:
    notes = annotations_of(fn, source_of(fn))
    args = [argument_for(notes.get(p), names, p) for p in fn.__code__.co_varnames[: _count(fn)]]
    return lower(fn, *args, **names.get("OPTIONS", {}))


def _count(fn: FunctionType) -> int:
    return fn.__code__.co_argcount
