"""Derivatives of the solutions that iterative solvers find, in tapes: of x in A x = b, where A is a
kernel.

Owns: `solved`, which has a tape record a solver as one call. Its gradient solves the system of the
transposed matrix once, with the same solver, for s: that is the gradient by b, and what the matrix
itself depends on gets -s^T dA x, by the gradient of its kernel. Where x stood first has no
influence. Assumed is that A is linear, that x solves the system (a gradient is refused where the
solver did not converge), and, of `MatrixFreeCG`, that A is symmetric, which it needs anyway. Must
not know: how solvers work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from vkchi.algorithms.arrays import make_like
from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.kernel import BoundKernel, Kernel
from vkchi.runtime import current
from vkchi.span import user_span
from vkchi.tape.calls import arrays_of, companion
from vkchi.tape.custom import Recorded

LEAST = {"f32": 1e-6, "f64": 1e-12}  # what residual, relative to the right side, can be asked for


class Operator(Protocol):
    """What solvers multiply by."""

    def matvec(self, x: Any, Ax: Any) -> None:
        """Set Ax to A @ x."""


Solve = Callable[[Operator, Any, Any, float], bool]  # A, b, x, tol: whether it converged


class System(NamedTuple):
    """A system that a solver solves: `title` is the solver's name, `product` the kernel."""

    title: str
    solve: Solve
    product: Kernel | BoundKernel
    operator: Operator
    is_symmetric: bool


def solved(system: System, b: Any, x: Any, tol: float) -> bool:
    """Solve the system, as one call of the tape that records now."""
    tape = current().tape
    x.tell(Access("fill"))  # what stood there has no influence
    inputs = inputs_of(system.product, x)
    tape.overwrites.check_arrays(inputs.values())
    tape.overwrites.check_arrays([b])
    has_place = companion(x, "grad") is not None

    def run() -> bool:
        gradient.has_converged = system.solve(system.operator, b, x, tol)
        gradient.solution = x.contents()
        return gradient.has_converged

    gradient = Gradient(system, b, x, tol)
    run.__name__ = system.title
    recorded = Recorded(run, is_skipped=False)
    recorded.grad = gradient
    found = bool(tape.call_custom(recorded, (), {}))
    way = f"{system.title}() took it from there here"
    tape.let_go([b, *inputs.values()], x, way, is_all=not has_place)
    return found


def inputs_of(product: Kernel | BoundKernel, x: Any) -> dict[str, Storage]:
    """The arrays that the matrix is made of, by parameter name."""
    v, Av = make_like(x), make_like(x)
    found = product.examine(lambda plan, args: arrays_of(plan, args), v, Av)
    return {name: a for name, a in found.items() if a is not v and a is not Av}


class Gradient:
    """That of one call: `solution` is what it found."""

    solution: np.ndarray[Any, Any]
    has_converged = False

    def __init__(self, system: System, b: Any, x: Any, tol: float) -> None:
        self.system, self.b, self.x, self.tol = system, b, x, tol
        self.right = float(np.linalg.norm(b.contents().astype(np.float64)))
        self.span = user_span()
        self.__name__ = system.title

    def __call__(self) -> None:
        """Add to the gradients of b, and of what the matrix is made of."""
        slopes = companion(self.x, "grad")
        slope = slopes.contents().astype(np.float64) if slopes is not None else np.zeros(1)
        size = float(np.linalg.norm(slope))
        if size == 0:
            return
        assert slopes is not None
        slopes.fill(0)
        if not self.has_converged:
            raise self._refuse("it did not converge: x is no solution")
        v, Av = (make_like(self.x, needs_grad=True) for _ in range(2))
        g, s = make_like(self.x), make_like(self.x)
        g.put_unnoticed(slope / size)
        operator = self.system.operator
        if not self.system.is_symmetric:
            operator = Transposed(self.system.product, v, Av)
        least = LEAST[str(self.x.dtype)]
        tol = max(least, min(self.tol / self.right if self.right else least, 1e-4))
        if not self.system.solve(operator, g, s, tol):
            raise self._refuse("the system of the transposed matrix could not be solved")
        found = s.contents().astype(np.float64) * size
        by_b = companion(self.b, "grad")
        if by_b is not None:
            by_b.put_unnoticed(by_b.contents() + found)
        if any(companion(a, "grad") for a in inputs_of(self.system.product, self.x).values()):
            v.put_unnoticed(self.solution)
            Av.grad.put_unnoticed(-found)
            self.system.product.grad(v, Av)

    def _refuse(self, why: str) -> GradientError:
        return GradientError(
            f"the gradient flows through {self.system.title}(), and {why}", self.span,
            help="let it go on for longer (maxiter), or ask for less (tol)",
        )  # fmt: skip


class Transposed(NamedTuple):
    """The transposed matrix: its product is the gradient of the product."""

    product: Kernel | BoundKernel
    v: Any
    Av: Any

    def matvec(self, x: Any, Ax: Any) -> None:
        """Set Ax to A^T @ x."""
        self.v.grad.fill(0)
        self.Av.grad.put_unnoticed(x.contents())
        self.product.grad(self.v, self.Av)
        Ax.put_unnoticed(self.v.grad.contents())
