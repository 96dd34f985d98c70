"""Iterative solvers for linear systems whose matrix is a kernel.

Owns: `LinearOperator`, `MatrixFreeCG`, `MatrixFreeBICGSTAB`. Vectors are fields or ndarrays of f32
or f64, of any number of axes. Must not know: any matrix.

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
from vkchi.linalg.adjoint import Operator, Solve, System, solved
from vkchi.linalg.direct_solver import TOLERANCES
from vkchi.runtime import current
from vkchi.span import user_span
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, f32, f64


class LinearOperator:
    """The matrix that `matvec_kernel(x, Ax)` multiplies by: it sets Ax to A @ x."""

    def __init__(self, matvec_kernel: Callable[[Any, Any], Any]) -> None:
        self._matvec = matvec_kernel

    def matvec(self, x: Storage, Ax: Storage) -> None:
        """Set Ax to A @ x. Raises KernelRuntimeError where their shapes differ."""
        if x.shape != Ax.shape:
            raise KernelRuntimeError(
                f"LinearOperator: x has the shape {x.shape}, and Ax {Ax.shape}"
            )
        self._matvec(x, Ax)

    @property
    def kernel(self) -> Kernel | BoundKernel | None:
        """The matrix, if it is a single kernel."""
        found = self._matvec
        return found if isinstance(found, Kernel | BoundKernel) else None


# --- vectors -------------------------------------------------------------------------------------


class Vectors(NamedTuple):
    """What the solvers do with vectors of one number type."""

    dot: ArrayKernel  # (x, y): the sum of products
    add: ArrayKernel  # (y, x, a): y += a x
    scale_add: ArrayKernel  # (y, x, a): y = x + a y


@functools.cache
def vectors_of(t: Scalar) -> Vectors:
    """The kernels for number type t."""

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

    return Vectors(dot, add, scale_add)


def _check(who: str, b: Any, x: Any) -> Vectors:
    """The kernels for b and x. Raises KernelTypeError, KernelRuntimeError."""
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


def _set_residual(r: Any, v: Vectors, A: Operator, b: Any, x: Any, Ax: Any) -> None:
    """Set r to b - A x; Ax is to work in. The first indices of b may be others than x has."""
    r.copy_from(b)
    A.matvec(x, Ax)
    v.add(r, Ax, -1.0)


def _has_solved(
    r: Any, v: Vectors, A: Operator, b: Any, x: Any, Ax: Any, tol: float, square: float, log: _Log
) -> bool:
    """True if the iterations' residual, of norm sqrt(`square`), is below tol, and b - A x is as
    well or small relative to b: rounding separates the two where x is much larger than b."""
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
    """What a solver says of its iterations, unless it is quiet."""

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
    """Solve a system; in a tape, so that x has its derivative, if A is a kernel. Where a derivative
    would have to flow through the iterations themselves, the error says so."""
    tape, product = current().tape, A.kernel
    if tape is None or tape.is_paused:
        return solve(A, b, x, tol)
    if tape.records_functions and product is not None and b.whole is not x.whole:
        return solved(System(title, solve, product, A, is_symmetric), b, x, tol)
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
    """Solve A x = b for a symmetric positive definite A by conjugate gradients, from the x given;
    True if the residual's norm got below `tol` (absolute) in `maxiter` iterations.

    Raises KernelTypeError, KernelRuntimeError for arrays that do not fit. Source: M. R. Hestenes
    and E. Stiefel, "Methods of conjugate gradients for solving linear systems", 1952.
    """
    v, log = _check("MatrixFreeCG", b, x), _Log("MatrixFreeCG", quiet)

    def solve(A: Operator, b: Any, x: Any, tol: float) -> bool:
        return conjugate_gradients(A, b, x, tol, maxiter, v, log)

    return solve_with_gradient("MatrixFreeCG", solve, A, b, x, tol, is_symmetric=True)


def conjugate_gradients(
    A: Operator, b: Any, x: Any, tol: float, maxiter: int, v: Vectors, log: _Log
) -> bool:
    """The iterations; whether they converged."""
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
    """Solve A x = b for any regular A by stabilised biconjugate gradients, from the x given; True
    if the residual's norm got below `tol` (absolute) in `maxiter` iterations.

    Raises KernelTypeError, KernelRuntimeError for arrays that do not fit. Source: H. A. van der
    Vorst, "Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG", 1992.
    """
    v, log = _check("MatrixFreeBICGSTAB", b, x), _Log("MatrixFreeBICGSTAB", quiet)

    def solve(A: Operator, b: Any, x: Any, tol: float) -> bool:
        return biconjugate_gradients(A, b, x, tol, maxiter, v, log)

    return solve_with_gradient("MatrixFreeBICGSTAB", solve, A, b, x, tol, is_symmetric=False)


def biconjugate_gradients(
    A: Operator, b: Any, x: Any, tol: float, maxiter: int, v: Vectors, log: _Log
) -> bool:
    """The iterations; whether they converged."""
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
