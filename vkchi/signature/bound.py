"""The arguments of one call, bound: numbers, arrays, and what of them lies in the host's memory.

Owns: `Bound`, to which parameters append themselves; the copies of host arrays, which of them a
kernel may write, and who is told. Must not know: annotations, shaders.

A bound array contributes its address, its number of scalars and its extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.interop.in_place import HostNdarray
from vkchi.interop.written import check_view, expect_no_slope, is_recorded, tell_torch
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.interop.cuda.arrays import Loan
    from vkchi.span import Span


class Import(NamedTuple):
    """An argument in host memory and its copy on the device, or the array that it is there;
    arguments that are the same memory share one copy. `owner` is what was passed; `loan` is what
    brings it, where it lies in CUDA's memory (`interop.cuda`)."""

    name: str
    view: np.ndarray[Any, Any]
    array: Ndarray
    owner: Any
    loan: Loan | None = None


class Writer(Protocol):
    """A kernel that writes to arrays of these names, and reads others."""

    written: set[str]
    read: set[str]

    @property
    def origin(self) -> tuple[str, Span | None]:
        """What it is called, and where it stands in the user's files, if that is known."""

    def first_write(self, name: str) -> Span | None:
        """Where it first writes to an argument, if that is known; it may take long to find."""


class Bound:
    """What binding the arguments of one call yields: numbers, arrays, and which of those are copies
    of host memory, or in place there: `owners` keep that memory."""

    __slots__ = ("arrays", "flat", "held", "imports", "owners", "runtime")

    def __init__(self, runtime: Runtime, constants: list[Any]) -> None:
        self.runtime = runtime
        self.flat = list(constants)
        self.arrays: dict[str, Storage] = {}
        self.imports: list[Import] = []
        self.owners: list[object] = []
        self.held: Any = None

    def bind_array(self, name: str, array: Storage) -> None:
        """Append an array's address, number of scalars and extents."""
        self.arrays[name] = array
        self.flat.append(array.buffer.address)
        self.flat.append(array.layout.size)
        self.flat.extend(array.shape)

    def check_written(self, plan: Writer) -> None:
        """Raises ArgumentError where copying back what the kernel writes would go wrong."""
        written = plan.written
        for one in self.imports:
            if one.name not in written:
                continue
            if any(may_overlap(one, other) for other in self.imports):
                raise self._refuse_overlap(one, plan)
            if isinstance(one.array, HostNdarray):
                continue
            if not one.view.flags.writeable:
                raise ArgumentError(
                    f"argument `{one.name}`: the kernel writes to it{written_at(plan, one.name)},"
                    f" and this {'array' if one.loan else 'numpy array'} is read-only: pass a copy"
                )
            if host.overlaps_itself(one.view):
                raise ArgumentError(
                    f"argument `{one.name}`: the kernel writes to it{written_at(plan, one.name)},"
                    " and several of its elements are the same memory: pass a copy"
                )

    def check_apart(self, plan: Writer, fields: Mapping[str, Storage]) -> None:
        """Raises ArgumentError where a copy of host memory is one of memory that the kernel reaches
        otherwise as well: by a view of an array that is an argument, or one of `fields`. What is in
        place is never memory of the device's own."""
        own = {id(one.array) for one in self.imports}
        others = {k: a for k, a in {**fields, **self.arrays}.items() if id(a) not in own}
        for one in self.imports:
            if isinstance(one.array, HostNdarray):
                continue
            for name, array in others.items():
                if not plan.written & {one.name, name}:
                    continue
                if is_part_of(one, array):
                    changed = name if name in plan.written else one.name
                    raise ArgumentError(
                        f"argument `{one.name}` is memory of the device's array `{name}`, and the "
                        f"kernel writes to `{changed}`{written_at(plan, changed)}: pass a copy of "
                        "it, or the array itself"
                    )

    def check_types(self, plan: Writer) -> None:
        """Raises ArgumentError where memory in place is seen as numbers of several types, and the
        kernel writes it: compiled code takes such arrays for different memory."""
        taken = [(name, a) for name, a in self.arrays.items() if isinstance(a, HostNdarray)]
        for (name, a), (other, b) in permutations(taken, 2):
            is_met = a.start < b.end and b.start < a.end
            if name in plan.written and is_met and a.stored is not b.stored:
                raise self._refuse(name, other, plan)

    def _refuse_overlap(self, one: Import, plan: Writer) -> ArgumentError:
        other = next(other for other in self.imports if may_overlap(one, other))
        return self._refuse(one.name, other.name, plan)

    def _refuse(self, name: str, other: str, plan: Writer) -> ArgumentError:
        return ArgumentError(
            f"arguments `{name}` and `{other}` overlap in memory, and the kernel writes to "
            f"`{name}`{written_at(plan, name)}: pass a copy of one of them"
        )

    def share(self, shared: Sequence[Import]) -> None:
        """Take over arguments that are used in place. Their owners are kept for as long as this is
        there itself, and the device at work with what was recorded until then."""
        self.imports += shared
        self.owners += [one.owner for one in shared]
        self.held = self.runtime.device.heap.hold(self.owners)
        for loan in self.loans:
            loan.bring()
        for stream in {loan.stream: None for loan in self.loans}:
            self.loans[0].link.lend(stream)

    @property
    def loans(self) -> list[Loan]:
        """What was lent of CUDA's memory, each once."""
        return list({one.loan: None for one in self.imports if one.loan is not None})

    def copy_back(self, written: set[str]) -> None:
        """Bring host memory up to date with what the kernel wrote; waits if there is any."""
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

    def _return_loans(self, loans: Sequence[Loan], written: set[str]) -> None:
        """Have CUDA's streams go on after the launch, and take what it wrote."""
        for stream in {loan.stream: None for loan in loans}:
            loans[0].link.take_back(stream)
        changed = {one.loan for one in self.imports if one.name in written}
        for loan in loans:
            if loan in changed:
                loan.fetch()
            loan.end()

    def import_gradient(self, name: str, argument: str) -> Ndarray | None:
        """A copy of the gradient of an argument that is a torch tensor, under a name of its own;
        None if the argument has none."""
        one = next((one for one in self.imports if one.name == argument), None)
        grad = host.make_grad(one.owner) if one is not None else None
        if one is None or grad is None:
            return None
        view = host.array_of_torch(grad)
        array = Ndarray(self.runtime, one.array.elem, one.array.shape)
        array.put_unnoticed(view)
        self.imports.append(Import(name, view, array, grad))
        return array


def borrow(parameter: Any, arg: object, others: Sequence[Import], runtime: Runtime) -> Import:
    """An argument in CUDA's memory; one that was passed before in this call is lent once. Raises
    ArgumentError where it cannot be had."""
    from vkchi.interop.cuda.arrays import cuda_arrays  # few programs have any

    try:
        loan = next((one.loan for one in others if one.loan and one.owner is arg), None)
        loan = loan or cuda_arrays(runtime).lend(arg, parameter.element_axes)
    except ArgumentError as e:
        raise parameter.refuse(str(e)) from None
    return Import(parameter.name, loan.view, loan.array, arg, loan)


def may_overlap(one: Import, other: Import) -> bool:
    """Whether two arguments are different arrays of which one's elements may be in the other."""
    a, b = one.array, other.array
    if a.buffer is b.buffer:
        return False
    if isinstance(a, HostNdarray) and isinstance(b, HostNdarray):
        if a.end <= b.start or b.end <= a.start:
            return False
        is_same = a.start == b.start and a.shape == b.shape
        return not (is_same and a.argument is b.argument)
    return host.may_overlap(one.view, other.view)


def is_mixed(args: Sequence[object]) -> bool:
    """Whether arguments are memory of the host in place, of several types of numbers."""
    return len({a.stored for a in args if isinstance(a, HostNdarray)}) > 1


def is_part_of(one: Import, array: Storage) -> bool:
    """Whether an argument that is no array of ours shares memory with one of ours."""
    if array.host is not None:
        return one.loan is None and host.may_overlap(one.view, array.host)
    a, b = one.array.buffer, array.buffer
    return a.address < b.address + b.size_bytes and b.address < a.address + a.size_bytes


def memory_of(array: Ndarray) -> object:
    """What is equal for arguments that are the same memory."""
    return array.start if isinstance(array, HostNdarray) else id(array.buffer)


def written_at(plan: Writer, name: str) -> str:
    """Where in the user's files a kernel first writes to an argument, for messages."""
    span = plan.first_write(name)
    return f" at {span.place}" if span is not None else ""


def find_changed(imports: Sequence[Import], plan: Writer) -> list[int]:
    """The places of those whose memory a kernel writes, by whatever name."""
    changed = {memory_of(one.array) for one in imports if one.name in plan.written}
    return [k for k, one in enumerate(imports) if memory_of(one.array) in changed]


def tell_owners(
    imports: Sequence[Import], changed: Sequence[int], plan: Writer, *, is_taped: bool
) -> None:
    """Tell torch which tensors a kernel is about to write, of those at the places `changed`; a tape
    knows of leaves itself. Raises ArgumentError where torch does not allow that."""
    tensors = [imports[k] for k in changed if host.is_torch(imports[k].owner)]
    if not tensors:
        return
    for one in tensors if not is_taped else ():
        check_view(one.name, one.owner)
    for one in tensors:
        tell_torch(one.name, one.owner, plan)
    if not is_taped and any(
        host.is_torch(one.owner) and is_recorded(one.owner)
        for one in imports
        if one.name in plan.read
    ):
        for one in tensors:
            expect_no_slope(one.owner, plan)
