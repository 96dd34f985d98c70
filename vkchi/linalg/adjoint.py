"""Adjoint method for iterative solvers in tapes: derivatives of x in A x = b, where A is a kernel.

`solve_on_tape` records a solver run as one call of the tape. Its gradient solves the transposed
system A^T s = dx once, with the same solver; dx is the gradient of x. s is added to the gradient of
b. The arrays that A depends on get -s^T dA x, by the gradient of the kernel. The initial guess has
no influence.

Precondition: A is linear. The gradient raises GradientError if a solver run did not converge, and
for `MatrixFreeCG` if A is not symmetric. It does nothing if dx is 0.

Guarantees: A is the matrix of the solver run, even if Python variables of the kernel have changed
since, or if fields that it reads were overwritten. In limited memory, the latter is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from vkchi.algorithms.array_kernels import make_like
from vkchi.calls.call import LaunchRequest as Launch
from vkchi.calls.variant import Variant
from vkchi.errors import GradientError
from vkchi.fields.array_versions import Read
from vkchi.fields.elements import ArrayAccess
from vkchi.fields.storage import Storage
from vkchi.kernel import BoundKernel, Kernel, launch_or_record
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.runtime import current_runtime
from vkchi.span import Span, user_span
from vkchi.tape.custom import Recorded
from vkchi.tape.kernel_grad import run_gradient
from vkchi.tape.ledger import box_at
from vkchi.tape.queries import check_known
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

Vector = np.ndarray[Any, Any]

ROUNDINGS = 64  # rounding errors allowed per entry of a product
LEAST = {"f32": 1e-6, "f64": 1e-12}  # smallest tolerance, relative to b


class Operator(Protocol):
    """Matrix interface of the solvers."""

    def matvec(self, x: Any, Ax: Any) -> None: ...


Solve = Callable[[Operator, Any, Any, float], bool]  # A, b, x, tol -> converged


class LinearSystem(NamedTuple):
    """A system for a solver.

    - title: the solver's name.
    - product: the kernel of `operator`.
    - is_symmetric: True if the solver requires a symmetric matrix.
    """

    title: str
    solve: Solve
    product: Kernel | BoundKernel
    operator: Operator
    is_symmetric: bool


class SavedContents:
    """Contents of arrays at the time of a solver run, copied before they are overwritten.

    It implements `tape.kernel_grad.FieldContents`.
    """

    def __init__(self) -> None:
        self.reads: dict[int, Read] = {}

    def keep(self, arrays: Iterable[Storage]) -> None:
        """Save the contents of arrays for the gradients of the current tape.

        No effect in limited memory, where steps are repeated from saved states.
        """
        tape = current_runtime().tape
        if not tape.snapshots.is_limited:
            for array in arrays:
                account = tape.ledger.open(array)
                self.reads[id(array)] = tape.snapshots.want(account, array, box_at(array), None)

    def find(self, array: Storage) -> Storage:
        read = self.reads.get(id(array))
        return array if read is None else read.source

    def knows(self, array: Storage) -> bool:
        return id(array) in self.reads

    def check(self, name: str, array: Storage, span_of: Callable[[str], Span | None]) -> None:
        """Do nothing: the tape reports reads of overwritten arrays (`custom.MutationLog`)."""

    def changed(self, arrays: Mapping[str, Storage]) -> dict[str, Storage] | None:
        """The copies of arrays that were overwritten since, by name; None if there are none or if
        not all of `arrays` are saved."""
        if not all(map(self.knows, arrays.values())):
            return None
        found = {name: self.find(array) for name, array in arrays.items()}
        return {name: copy for name, copy in found.items() if copy is not arrays[name]} or None


class MatrixProduct(NamedTuple):
    """The matrix product at the time of a solver run: a call of the kernel that sets Av to A @
    v."""

    name: str
    kernel: CompiledKernel
    args: tuple[Any, ...]
    v: Any
    Av: Any
    contents: SavedContents

    def multiply(self, x: Vector) -> Vector:
        self.v.put_unnoticed(x)
        changed = self.contents.changed(self.inputs())
        if changed is None:
            launch_or_record(self.name, self.kernel, self.args)
        else:
            call = Launch(self.name, self.kernel, self.args).call
            made = self.kernel.derived.find(
                "itself", None, lambda: Variant(call, self.kernel.artifact)
            )
            made.run(call, {**call.arrays, **changed})
        return np.array(self.Av.contents())

    def multiply_transposed(self, x: Vector) -> Vector:
        """Return A^T @ x, by the gradient of the product at v = 0, which adds nothing to the
        gradients of A's arrays."""
        self.v.put_unnoticed(np.zeros_like(x))
        self.v.grad.fill(0)
        self.Av.grad.put_unnoticed(x)
        run_gradient(self.name, self.kernel, self.args, fields=self.contents)
        return np.array(self.v.grad.contents())

    def differentiate(self, x: Vector, slope: Vector) -> None:
        """Add to the gradients of the arrays that A depends on, where the gradient of A is slope
        x^T."""
        self.v.put_unnoticed(x)
        self.Av.grad.put_unnoticed(slope)
        run_gradient(self.name, self.kernel, self.args, fields=self.contents)

    def inputs(self) -> dict[str, Storage]:
        """The arrays other than v and Av that the kernel accesses, by parameter name."""
        found = Launch(self.name, self.kernel, self.args).arrays
        return {name: a for name, a in found.items() if a is not self.v and a is not self.Av}

    def is_symmetric(self) -> bool:
        """True if u^T A w equals w^T A u up to rounding, for two random vectors."""
        numbers = np.random.default_rng(1)
        u, w = (numbers.uniform(-1, 1, self.v.shape).astype(self.v.dtype.dtype) for _ in range(2))
        left, right = (a * self.multiply(b).astype(np.float64) for a, b in ((u, w), (w, u)))
        noise = ROUNDINGS * np.finfo(u.dtype).eps * np.linalg.norm(np.stack([left, right]))
        return bool(abs(left.sum() - right.sum()) <= noise)


def product_of(kernel: Kernel | BoundKernel, x: Any) -> MatrixProduct:
    """Return the product by a kernel in its present state, for vectors like `x`. Its vectors are
    shared by all products of this tape for vectors of that type and shape."""
    pairs = current_runtime().tape.solving
    key = type(x), x.dtype, x.shape, tuple(x.origin)
    if key not in pairs:  # shared: gradients run one at a time
        pairs[key] = tuple(make_like(x, needs_grad=True) for _ in range(2))
    v, Av = pairs[key]
    return kernel.inspect(
        lambda compiled, args: MatrixProduct(
            kernel_name(kernel), compiled, args, v, Av, SavedContents()
        ),
        v,
        Av,
    )


def kernel_name(kernel: Kernel | BoundKernel) -> str:
    found: Any = kernel.func if isinstance(kernel, BoundKernel) else kernel
    return str(found.__name__)


class FunctionOperator(NamedTuple):
    """A function of vectors as an operator."""

    multiply: Callable[[Vector], Vector]

    def matvec(self, x: Any, Ax: Any) -> None:
        Ax.put_unnoticed(self.multiply(x.contents()))


def solve_on_tape(system: LinearSystem, b: Any, x: Any, tol: float) -> bool:
    """Solve the system as one call of the current tape. Return True if the solver converged."""
    tape = current_runtime().tape
    x.tell(ArrayAccess("fill"))  # the initial guess has no influence
    product = product_of(system.product, x)
    inputs = product.inputs()
    check_known(tape.ledger, [*inputs.values(), b])
    product.contents.keep(inputs.values())
    has_place = x.companion("grad") is not None

    def run() -> bool:
        gradient.has_converged = system.solve(system.operator, b, x, tol)
        gradient.solution = x.contents()
        return gradient.has_converged

    gradient = SolverGradient(system, product, b, x, tol)
    run.__name__ = system.title
    recorded = Recorded(run, is_skipped=False)
    recorded.grad = gradient
    found = bool(tape.call_custom(recorded, (), {}))
    if has_place:  # x is differentiable even if no kernel wrote to it
        tape.hold_result(x, f"{system.title}()")
    way = f"{system.title}() took it from there here"
    tape.note_detached([b, *inputs.values()], x, way, is_all=not has_place)
    return found


class SolverGradient:
    """Gradient of one solver run; `solution` is its result."""

    solution: Vector
    has_converged = False

    def __init__(
        self, system: LinearSystem, product: MatrixProduct, b: Any, x: Any, tol: float
    ) -> None:
        self.system, self.product, self.b, self.x, self.tol = system, product, b, x, tol
        self.right = float(np.linalg.norm(b.contents().astype(np.float64)))
        self.span = user_span()
        self.__name__ = system.title

    def __call__(self) -> None:
        """Add to the gradients of b and of the arrays that A depends on; reset that of x to
        zero."""
        slopes = self.x.companion("grad")
        slope = slopes.contents().astype(np.float64) if slopes is not None else np.zeros(1)
        size = float(np.linalg.norm(slope))
        if size == 0:
            return
        assert slopes is not None
        slopes.fill(0)
        found = self.solve_transposed(slope / size) * size
        by_b = self.b.companion("grad")
        if by_b is not None:
            by_b.put_unnoticed(by_b.contents() + found)
        if any(a.companion("grad") for a in self.product.inputs().values()):
            self.product.differentiate(self.solution, -found)

    def solve_transposed(self, slope: Vector) -> Vector:
        """The solution of A^T s = slope. Raises GradientError if either run did not converge, or A
        is not symmetric but must be."""
        longer = "let it go on for longer (maxiter), or ask for less (tol)"
        if not self.has_converged:
            raise self._refuse("it did not converge: x is no solution", longer)
        multiply = self.product.multiply
        if not self.system.is_symmetric:
            multiply = self.product.multiply_transposed
        elif not self.product.is_symmetric():
            raise self._refuse("the matrix is not symmetric", "take ti.linalg.MatrixFreeBICGSTAB")
        g, s = make_like(self.x), make_like(self.x)
        g.put_unnoticed(slope)
        least = LEAST[str(self.x.dtype)]
        tol = max(least, min(self.tol / self.right if self.right else least, 1e-4))
        if not self.system.solve(FunctionOperator(multiply), g, s, tol):
            raise self._refuse("the system of the transposed matrix could not be solved", longer)
        found: Vector = s.contents().astype(np.float64)
        return found

    def _refuse(self, why: str, help: str) -> GradientError:
        text = f"the gradient flows through {self.system.title}(), and {why}"
        return GradientError(text, self.span, help=help)
