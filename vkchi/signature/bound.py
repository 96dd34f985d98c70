"""Bound arguments of one call: scalars, arrays, and imports of host or CUDA memory.

`BoundArguments` collects the scalars that parameters append. It also checks that imported arrays
may be written, and copies results back. `notify_torch` reports writes to torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.interop.in_place import HostNdarray
from vkchi.interop.torch_writes import check_view, forbid_leaf_gradient, is_recorded, report_write
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.interop.cuda.arrays import CudaArgument
    from vkchi.span import Span


class ImportedArray(NamedTuple):
    """An argument in host or CUDA memory, and its device array.

    The device array is a copy, or the same memory in place. Arguments of one view and element type
    share one copy. `owner` is the object that was passed; `loan` manages memory of CUDA
    (`interop.cuda`).
    """

    name: str
    view: np.ndarray[Any, Any]
    array: Ndarray
    owner: Any
    loan: CudaArgument | None = None


class WritingKernel(Protocol):
    """Protocol of a kernel: the names of the arrays that it writes and reads."""

    written: set[str]
    read: set[str]

    @property
    def origin(self) -> tuple[str, Span | None]:
        """Name of the kernel, and its source location if known."""

    def first_write(self, name: str) -> Span | None:
        """Source location of its first write to an argument, if known; may be slow."""


class BoundArguments:
    """Result of binding the arguments of one call. `flat` holds the scalars, `arrays` the arrays by
    name, `imports` the imported ones. `owners` keep imported memory alive."""

    __slots__ = ("arrays", "flat", "held", "imports", "owners", "runtime")

    def __init__(self, runtime: Runtime, constants: list[Any]) -> None:
        self.runtime = runtime
        self.flat = list(constants)
        self.arrays: dict[str, Storage] = {}
        self.imports: list[ImportedArray] = []
        self.owners: list[object] = []
        self.held: Any = None

    def bind_array(self, name: str, array: Storage) -> None:
        """Append an array's address, number of scalars and extents."""
        self.arrays[name] = array
        self.flat.append(array.buffer.address)
        self.flat.append(array.layout.size)
        self.flat.extend(array.shape)

    def check_written(self, kernel: WritingKernel) -> None:
        """Raise ArgumentError if the kernel writes an import that may overlap a different one.

        Also if it writes an import that is read-only or overlaps itself, unless that is host memory
        used in place.
        """
        written = kernel.written
        for one in self.imports:
            if one.name not in written:
                continue
            if any(may_overlap(one, other) for other in self.imports):
                raise self._refuse_overlap(one, kernel)
            if isinstance(one.array, HostNdarray):
                continue
            if not one.view.flags.writeable:
                raise ArgumentError(
                    f"argument `{one.name}`: the kernel writes to it{written_at(kernel, one.name)},"
                    f" and this {'array' if one.loan else 'numpy array'} is read-only: pass a copy"
                )
            if host_views.overlaps_itself(one.view):
                raise ArgumentError(
                    f"argument `{one.name}`: the kernel writes to it{written_at(kernel, one.name)},"
                    " and several of its elements are the same memory: pass a copy"
                )

    def check_apart(self, kernel: WritingKernel, fields: Mapping[str, Storage]) -> None:
        """Raise ArgumentError if an import aliases memory of a device array, and the kernel writes
        either.

        The device array is an argument or one of `fields`. Host memory imported in place is not
        checked: it is never device memory.
        """
        own = {id(one.array) for one in self.imports}
        others = {k: a for k, a in {**fields, **self.arrays}.items() if id(a) not in own}
        for one in self.imports:
            if isinstance(one.array, HostNdarray):
                continue
            for name, array in others.items():
                if not kernel.written & {one.name, name}:
                    continue
                if aliases_device_array(one, array):
                    changed = name if name in kernel.written else one.name
                    raise ArgumentError(
                        f"argument `{one.name}` is memory of the device's array `{name}`, and the "
                        f"kernel writes to `{changed}`{written_at(kernel, changed)}: pass a copy "
                        "of it, or the array itself"
                    )

    def check_types(self, kernel: WritingKernel) -> None:
        """Raise ArgumentError if a written in-place import overlaps one of another scalar type.
        Compiled code assumes that arrays of different types do not alias."""
        taken = [(name, a) for name, a in self.arrays.items() if isinstance(a, HostNdarray)]
        for (name, a), (other, b) in permutations(taken, 2):
            is_met = a.start < b.end and b.start < a.end
            if name in kernel.written and is_met and a.stored is not b.stored:
                raise self._refuse(name, other, kernel)

    def _refuse_overlap(self, one: ImportedArray, kernel: WritingKernel) -> ArgumentError:
        other = next(other for other in self.imports if may_overlap(one, other))
        return self._refuse(one.name, other.name, kernel)

    def _refuse(self, name: str, other: str, kernel: WritingKernel) -> ArgumentError:
        return ArgumentError(
            f"arguments `{name}` and `{other}` overlap in memory, and the kernel writes to "
            f"`{name}`{written_at(kernel, name)}: pass a copy of one of them"
        )

    def share(self, shared: Sequence[ImportedArray]) -> None:
        """Add imports that are used in place. Copies CUDA arrays to staging buffers, and lends
        their streams.

        Their owners are kept alive while this object exists and until the device has executed the
        commands recorded so far.
        """
        self.imports += shared
        self.owners += [one.owner for one in shared]
        self.held = self.runtime.device.heap.hold(self.owners)
        for loan in self.loans:
            loan.bring()
        for stream in {loan.stream: None for loan in self.loans}:
            self.loans[0].link.lend(stream)

    @property
    def loans(self) -> list[CudaArgument]:
        return list({one.loan: None for one in self.imports if one.loan is not None})

    def copy_back(self, written: set[str]) -> None:
        """Copy written arrays back to host and CUDA memory, and let CUDA's streams continue. Waits
        for the device if host memory is used in place, unless launches are deferred."""
        for one in self.imports:
            is_copied = one.loan is None and not isinstance(one.array, HostNdarray)
            if one.name in written and is_copied:
                one.array.copy_to(one.view)
        loans = self.loans
        if loans:
            self._return_loans(loans, written)
        if len(self.owners) > len(loans) and not self.runtime.deferred:
            self.runtime.device.wait()
            self.owners.clear()

    def _return_loans(self, loans: Sequence[CudaArgument], written: set[str]) -> None:
        for stream in {loan.stream: None for loan in loans}:
            loans[0].link.take_back(stream)
        changed = {one.loan for one in self.imports if one.name in written}
        for loan in loans:
            if loan in changed:
                loan.fetch()
            loan.end()

    def import_gradient(self, name: str, argument: str) -> Ndarray | None:
        """Import a copy of the gradient of a torch argument as `name`.

        A missing gradient is created as zeros. Returns None for an argument that was not imported,
        and for a tensor that neither requires nor has a gradient.
        """
        one = next((one for one in self.imports if one.name == argument), None)
        grad = host_views.make_grad(one.owner) if one is not None else None
        if one is None or grad is None:
            return None
        view = host_views.array_of_torch(grad)
        array = Ndarray(self.runtime, one.array.elem, one.array.shape)
        array.put_unnoticed(view)
        self.imports.append(ImportedArray(name, view, array, grad))
        return array


def import_from_cuda(
    parameter: Any, arg: object, others: Sequence[ImportedArray], runtime: Runtime
) -> ImportedArray:
    """Import an argument in CUDA memory; the same object is lent once per call. Raises
    ArgumentError if it cannot be imported."""
    from vkchi.interop.cuda.arrays import cuda_arrays  # rarely needed

    try:
        loan = next((one.loan for one in others if one.loan and one.owner is arg), None)
        loan = loan or cuda_arrays(runtime).lend(arg, parameter.element_axes)
    except ArgumentError as e:
        raise parameter.refuse(str(e)) from None
    return ImportedArray(parameter.name, loan.view, loan.array, arg, loan)


def may_overlap(one: ImportedArray, other: ImportedArray) -> bool:
    """True if two arguments are different arrays whose memory may overlap."""
    a, b = one.array, other.array
    if a.buffer is b.buffer:
        return False
    if isinstance(a, HostNdarray) and isinstance(b, HostNdarray):
        if a.end <= b.start or b.end <= a.start:
            return False
        is_same = a.start == b.start and a.shape == b.shape
        return not (is_same and a.argument is b.argument)
    return host_views.may_overlap(one.view, other.view)


def has_mixed_scalar_types(args: Sequence[object]) -> bool:
    """True if in-place imports have several scalar types."""
    return len({a.stored for a in args if isinstance(a, HostNdarray)}) > 1


def aliases_device_array(one: ImportedArray, array: Storage) -> bool:
    """True if an imported argument may share memory with a device array."""
    if array.host is not None:
        return one.loan is None and host_views.may_overlap(one.view, array.host)
    a, b = one.array.buffer, array.buffer
    return a.address < b.address + b.size_bytes and b.address < a.address + a.size_bytes


def memory_key(array: Ndarray) -> object:
    return array.start if isinstance(array, HostNdarray) else id(array.buffer)


def written_at(kernel: WritingKernel, name: str) -> str:
    span = kernel.first_write(name)
    return f" at {span.place}" if span is not None else ""


def written_imports(imports: Sequence[ImportedArray], kernel: WritingKernel) -> list[int]:
    """Positions of the imports whose memory a kernel writes, under any name."""
    changed = {memory_key(one.array) for one in imports if one.name in kernel.written}
    return [k for k, one in enumerate(imports) if memory_key(one.array) in changed]


def notify_torch(
    imports: Sequence[ImportedArray],
    changed: Sequence[int],
    kernel: WritingKernel,
    *,
    is_taped: bool,
) -> None:
    """Notify torch of the tensors that a kernel is about to write, those at positions `changed`.

    Raises ArgumentError if torch forbids the write. If `is_taped`, views and leaves are left to the
    tape.
    """
    tensors = [imports[k] for k in changed if host_views.is_torch(imports[k].owner)]
    if not tensors:
        return
    for one in tensors if not is_taped else ():
        check_view(one.name, one.owner)
    for one in tensors:
        report_write(one.name, one.owner, kernel)
    if not is_taped and any(
        host_views.is_torch(one.owner) and is_recorded(one.owner)
        for one in imports
        if one.name in kernel.read
    ):
        for one in tensors:
            forbid_leaf_gradient(one.owner, kernel)
