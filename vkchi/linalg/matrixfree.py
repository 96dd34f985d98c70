"""Iterative solvers for linear systems with a kernel as matrix (matrix-free).

Vectors are fields or ndarrays of f32 or f64, with any number of axes.

    @ti.kernel
    def twice(v: ti.template(), Av: ti.template()):
        for i in v:
            Av[i] = 2 * v[i]

    MatrixFreeCG(LinearOperator(twice), b, x)           # True: x solves 2 x = b
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from vkchi.algorithms.array_kernels import ArrayKernel, check_array, make_like, on_arrays
from vkchi.errors import GradientError, KernelRuntimeError, KernelTypeError
from vkchi.fields.storage import Storage
from vkchi.kernel import BoundKernel, Kernel
from vkchi.lang.ndrange import grouped
from vkchi.linalg.adjoint import LinearSystem, Operator, Solve, solve_on_tape
from vkchi.linalg.direct_solver import TOLERANCES
from vkchi.runtime import current_runtime
from vkchi.span import user_span
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, f32, f64


class LinearOperator:
    """A matrix given by `matvec_kernel(x, Ax)`, which sets Ax to A @ x."""

    def __init__(self, matvec_kernel: Callable[[Any, Any], Any]) -> None:
        self._matvec = matvec_kernel

    def matvec(self, x: Storage, Ax: Storage) -> None:
        """Set Ax to A @ x. Raises KernelRuntimeError if their shapes differ."""
        if x.shape != Ax.shape:
            raise KernelRuntimeError(
                f"LinearOperator: x has the shape {x.shape}, and Ax {Ax.shape}"
            )
        self._matvec(x, Ax)

    @property
    def kernel(self) -> Kernel | BoundKernel | None:
        """The kernel, or None if `matvec` is another function."""
        found = self._matvec
        return found if isinstance(found, Kernel | BoundKernel) else None


# --- vectors -------------------------------------------------------------------------------------


class VectorKernels(NamedTuple):
    """Vector kernels of the solvers for one scalar type."""

    dot: ArrayKernel  # (x, y): the sum of products
    add: ArrayKernel  # (y, x, a): y += a x
    scale_add: ArrayKernel  # (y, x, a): y = x + a y


@functools.cache
def vectors_of(t: Scalar) -> VectorKernels:
    @on_arrays(returns=t)
    def dot(x: Any, y: Any) -> Any:
        total = t(0.0)
        for i in grouped(x):
            total += x[i] * y[i]
        return total

    @on_arrays(a=t)
    def add(y: Any, x: Any, a: Any) -> None:
        for i in grouped(y):
            y[i] += a * x[i]

    @on_arrays(a=t)
    def scale_add(y: Any, x: Any, a: Any) -> None:
        for i in grouped(y):
            y[i] = x[i] + a * y[i]

    return VectorKernels(dot, add, scale_add)


def _check(who: str, b: Any, x: Any) -> VectorKernels:
    """Return the vector kernels for b and x. Raises KernelTypeError unless both are f32 or both
    f64, KernelRuntimeError for different shapes, ArgumentError for other objects."""
    for name, array in (("b", b), ("x", x)):
        check_array(who, name, array)
    for name, array in (("b", b), ("x", x)):
        if array.is_encoded:
            raise KernelTypeError(
                f"{who}: `{name}` holds {array.dtype}: copy it into a field of ti.f32"
            )
    if b.elem is not x.elem or b.elem not in (f32, f64):
        raise KernelTypeError(
            f"{who}: b and x must be both f32 or both f64, not {b.elem} and {x.elem}"
        )
    if b.shape != x.shape:
        raise KernelRuntimeError(f"{who}: b has the shape {b.shape}, and x {x.shape}")
    return vectors_of(b.elem)


def _set_residual(r: Any, v: VectorKernels, A: Operator, b: Any, x: Any, Ax: Any) -> None:
    """Set r to b - A x, with Ax as scratch. The index origins of b and x may differ."""
    r.copy_from(b)
    A.matvec(x, Ax)
    v.add(r, Ax, -1.0)


def _has_solved(
    r: Any,
    v: VectorKernels,
    A: Operator,
    b: Any,
    x: Any,
    Ax: Any,
    tol: float,
    square: float,
    log: _Log,
) -> bool:
    """True if the iterations' residual, of norm sqrt(`square`), is below tol, and the true one is
    small too.

    The true residual b - A x must be at most tol, or small relative to b: they differ by rounding
    if x is much larger than b. It is computed in r, unless the first test fails.
    """
    if not math.sqrt(square) < tol:
        return False
    r.copy_from(b)
    limit = max(tol, TOLERANCES[str(b.dtype)] * math.sqrt(v.dot(r, r)))
    _set_residual(r, v, A, b, x, Ax)
    residual = math.sqrt(v.dot(r, r))
    if not residual <= limit:
        log(f"rounding errors: the residual is {residual:e}")
    return residual <= limit


class _Log:
    """Progress output of a solver, unless quiet."""

    def __init__(self, who: str, quiet: bool) -> None:
        self.who, self.quiet = who, quiet

    def __call__(self, text: str) -> None:
        if not self.quiet:
            print(f">>> {self.who}: {text}")

    def iteration(self, k: int, residual: float) -> None:
        self(f"iteration {k}, residual {residual:e}")


def solve_with_gradient(
    title: str, solve: Solve, A: LinearOperator, b: Any, x: Any, tol: float, *, is_symmetric: bool
) -> bool:
    """Solve a system; return True if the solver converged. In a tape, x gets a derivative if A is a
    kernel. Raises GradientError if a derivative would have to flow through the iterations."""
    tape, product = current_runtime().tape, A.kernel
    if tape is None or tape.is_paused:
        return solve(A, b, x, tol)
    if tape.records_functions and product is not None and b.whole is not x.whole:
        return solve_on_tape(LinearSystem(title, solve, product, A, is_symmetric), b, x, tol)
    try:
        return solve(A, b, x, tol)
    except GradientError as e:
        raise GradientError(
            f"a derivative flows through {title}(), whose iterations have none",
            user_span(), notes=e.notes,
            help="let the operator be a single kernel, in a tape (not in forward mode), or solve "
            "the transposed system in a gradient of its own, as in docs/autodiff.md, \"Gradients "
            'of your own"',
        ) from None  # fmt: skip


# --- the solvers ---------------------------------------------------------------------------------


def MatrixFreeCG(
    A: LinearOperator,
    b: Storage,
    x: Storage,
    tol: float = 1e-6,
    maxiter: int = 5000,
    quiet: bool = True,
) -> bool:
    """Conjugate gradients: solve A x = b for a symmetric positive definite A, starting from x.

    Return True if the norm of the recurrence's residual falls below `tol` (absolute) within
    `maxiter` iterations, and the true residual b - A x passes too. The norm of that must be at most
    `tol`, or 1e-3 (f32) or 1e-8 (f64) times the norm of b. `quiet` suppresses progress output.

    Raises KernelTypeError unless b and x are both f32 or both f64, KernelRuntimeError for different
    shapes and other objects. Source: M. R. Hestenes and E. Stiefel, "Methods of conjugate gradients
    for solving linear systems", 1952.
    """
    v, log = _check("MatrixFreeCG", b, x), _Log("MatrixFreeCG", quiet)

    def solve(A: Operator, b: Any, x: Any, tol: float) -> bool:
        return conjugate_gradients(A, b, x, tol, maxiter, v, log)

    return solve_with_gradient("MatrixFreeCG", solve, A, b, x, tol, is_symmetric=True)


def conjugate_gradients(
    A: Operator, b: Any, x: Any, tol: float, maxiter: int, v: VectorKernels, log: _Log
) -> bool:
    r, p, Ap = make_like(x), make_like(x), make_like(x)
    _set_residual(r, v, A, b, x, Ap)
    p.copy_from(r)
    square = v.dot(r, r)
    log(f"initial residual {math.sqrt(square):e}")
    for k in range(maxiter):
        if math.sqrt(square) < tol:
            log(f"converged after {k} iterations")
            break
        if not math.isfinite(square):
            break
        A.matvec(p, Ap)
        curvature = v.dot(p, Ap)
        if curvature == 0.0:
            break
        alpha = square / curvature
        v.add(x, p, alpha)
        v.add(r, Ap, -alpha)
        square, before = v.dot(r, r), square
        log.iteration(k + 1, math.sqrt(square))
        v.scale_add(p, r, square / before)
    return _has_solved(r, v, A, b, x, Ap, tol, square, log)


def MatrixFreeBICGSTAB(
    A: LinearOperator,
    b: Storage,
    x: Storage,
    tol: float = 1e-6,
    maxiter: int = 5000,
    quiet: bool = True,
) -> bool:
    """Bi-CGSTAB: solve A x = b for any regular A, starting from x.

    Return True under the condition of `MatrixFreeCG`, with its `tol`, `maxiter` and `quiet`. False
    if the recurrence breaks down before that.

    Raises the errors of `MatrixFreeCG`. Source: H. A. van der Vorst, "Bi-CGSTAB: a fast and
    smoothly converging variant of Bi-CG", 1992.
    """
    v, log = _check("MatrixFreeBICGSTAB", b, x), _Log("MatrixFreeBICGSTAB", quiet)

    def solve(A: Operator, b: Any, x: Any, tol: float) -> bool:
        return biconjugate_gradients(A, b, x, tol, maxiter, v, log)

    return solve_with_gradient("MatrixFreeBICGSTAB", solve, A, b, x, tol, is_symmetric=False)


def biconjugate_gradients(
    A: Operator, b: Any, x: Any, tol: float, maxiter: int, v: VectorKernels, log: _Log
) -> bool:
    r, shadow, p, Ap, Ar = (make_like(x) for _ in range(5))
    _set_residual(r, v, A, b, x, Ap)
    shadow.copy_from(r)
    p.copy_from(r)
    square = rho = v.dot(r, r)
    log(f"initial residual {math.sqrt(square):e}")
    for k in range(maxiter):
        if math.sqrt(square) < tol:
            log(f"converged after {k} iterations")
            break
        if not math.isfinite(square):
            break
        A.matvec(p, Ap)
        overlap = v.dot(shadow, Ap)
        if overlap == 0.0 or rho == 0.0:
            break
        alpha = rho / overlap
        v.add(r, Ap, -alpha)
        A.matvec(r, Ar)
        length = v.dot(Ar, Ar)
        omega = v.dot(Ar, r) / length if length > 0.0 else 0.0
        v.add(x, p, alpha)
        v.add(x, r, omega)
        v.add(r, Ar, -omega)
        square = v.dot(r, r)
        log.iteration(k + 1, math.sqrt(square))
        rho, before = v.dot(shadow, r), rho
        if omega == 0.0:
            break
        v.add(p, Ap, -omega)
        v.scale_add(p, r, rho / before * alpha / omega)
    return _has_solved(r, v, A, b, x, Ap, tol, square, log)
