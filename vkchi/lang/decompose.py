"""Decompositions and solvers of small matrices: named, and not there yet.

Owns: the objects and the one table of what to do instead.
"""

from __future__ import annotations

from typing import Any, NoReturn

from vkchi.errors import Unsupported
from vkchi.lang.function import Function

# name -> what to use instead
LATER: dict[str, str] = {
    "svd": "compute it with numpy.linalg.svd and pass the result",
    "polar_decompose": "compute it with numpy and pass the result",
    "sym_eig": "compute it with numpy.linalg.eigh and pass the result",
    "eig": "compute it with numpy.linalg.eig and pass the result",
    "solve": "use A.inverse() @ b for matrices up to 4 by 4",
    "frexp": "use ti.floor(ti.math.log2(abs(x))) + 1 for the exponent",
    "stop_grad": "compute the value in another kernel, under @ti.ad.no_grad",
}


def refuse(name: str) -> NoReturn:
    """Raise Unsupported for a name of the table."""
    raise Unsupported(f"ti.{name} is not supported yet: {LATER[name]}")


def _later(name: str) -> Function:
    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(name)

    return Function(name, refused, f"Not supported yet: {LATER[name]}.")


svd, polar_decompose, sym_eig, eig = map(_later, ("svd", "polar_decompose", "sym_eig", "eig"))
solve, frexp, stop_grad = map(_later, ("solve", "frexp", "stop_grad"))
