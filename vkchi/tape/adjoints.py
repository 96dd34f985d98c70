"""The adjoints of a recorded call: gradients of its arrays, `.grad` of its torch tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vkchi.calls.call import KernelCall
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.interop import host_views, torch_writes
from vkchi.interop.in_place import HostNdarray, host_arrays
from vkchi.interop.tensors import new_tensor, new_zeros
from vkchi.ndarray import Ndarray
from vkchi.runtime import await_host_memory
from vkchi.tuples import NamedTuple
from vkchi.types import shape_of

NO_NAMES: frozenset[str] = frozenset()


def clear_arrays(arrays: Iterable[Any]) -> None:
    for array in list(arrays):
        if array.has_memory:
            array.fill(0)


def adjoints_of(
    arrays: Mapping[str, Storage], but: frozenset[str] = NO_NAMES
) -> dict[str, Storage]:
    """Gradients by the names of their arrays. Arrays without gradient and those in `but` are
    absent."""
    found = {}
    for name, array in arrays.items():
        gradient = None if name in but else array.companion("grad")
        if gradient is not None:
            found[name] = gradient
    return found


class CallAdjoints:
    """The adjoints of a call's arrays.

    For fields and ndarrays these are their gradients. For torch tensors they are the `.grad`, in
    place or copied while a gradient runs. A tensor that is passed several times has one adjoint.
    """

    def __init__(self, call: KernelCall, known: Mapping[str, Storage] | None = None) -> None:
        self.call = call
        self.arrays = dict(adjoints_of(call.arrays, call.constants) if known is None else known)
        self.names = frozenset(self.arrays).union(call.tensors)  # arrays that have an adjoint
        self.fetched: dict[int, Fetched] = {}

    def fetch(self) -> None:
        """Import or copy the gradients of torch tensors to the device, into `arrays`.

        Missing gradients are zeros.
        """
        if self.call.tensors:
            await_host_memory()  # torch copies some gradients on the host
        written = self.call.kernel.written & self.call.tensors.keys()
        results = {id(self.call.tensors[name]) for name in written}
        for name, tensor in self.call.tensors.items():
            key = id(tensor)
            if key not in self.fetched:
                array = self.call.arrays[name]
                found = self._find(array, tensor, is_result=key in results)
                self.fetched[key] = found or copy_gradient(array, tensor, is_result=key in results)
            self.arrays[name] = self.fetched[key].array

    def _find(self, array: Storage, tensor: Any, *, is_result: bool) -> Fetched | None:
        """Import a tensor's gradient in place; for a result, a copy of it that torch allocates.

        None if the tensor is not in place, or if its gradient has another type or shape, or
        overlaps other arrays.
        """
        if not isinstance(array, HostNdarray):
            return None
        grad, axes = host_views.grad_of(tensor), len(shape_of(array.elem))
        if grad is None:
            grad = new_zeros(array.runtime, tensor, tensor.shape, tensor.dtype, axes)
        elif is_result:
            made = new_tensor(array.runtime, tensor, grad.shape, grad.dtype, axes)
            grad = made.copy_(grad.detach())
        found = host_arrays(array.runtime).find(grad, axes)
        if found is None or (found.elem, found.shape) != (array.elem, array.shape):
            return None
        others = [*self.call.arrays.values(), *(one.array for one in self.fetched.values())]
        if any(isinstance(a, HostNdarray) and a.meets(found) for a in others):
            return None
        return Fetched(tensor, found, grad, is_result=False)

    def bring_back(self) -> None:
        """Store the fetched gradients in the tensors' `.grad`, and drop them here.

        Copies become new `.grad` tensors for results and for tensors without gradient. Other copies
        are written into the old `.grad`.
        """
        for tensor, array, grad, is_result in self.fetched.values():
            if grad is not None:
                host_views.put_grad(tensor, grad)
                continue
            made = array.to_torch().reshape(tensor.shape)
            if is_result or host_views.grad_of(tensor) is None:
                tensor.grad = made
            else:
                host_views.write_grad(tensor, made)
        self.fetched.clear()
        for name in self.call.tensors:
            self.arrays.pop(name, None)

    @property
    def owners(self) -> list[Any]:
        return [one.grad for one in self.fetched.values() if one.grad is not None]


class Fetched(NamedTuple):
    """Gradient of a tensor on the device; `grad` is the tensor whose memory it shares, if any."""

    tensor: Any
    array: Ndarray
    grad: Any
    is_result: bool


def copy_gradient(array: Storage, tensor: Any, *, is_result: bool) -> Fetched:
    made = Ndarray(array.runtime, array.elem, array.shape)
    grad = host_views.grad_of(tensor)
    if grad is not None:
        made.from_torch(grad)
    return Fetched(tensor, made, None, is_result)


def counted_twice(call: KernelCall, name: str) -> GradientError:
    return GradientError(
        f"{call.name}(): the gradient of `{name}` would be counted twice: torch is going backward, "
        "and adds what it is given to the .grad of this tensor", call.kernel.func.span,
        help=f"pass {name}.detach(), and give torch the .grad of that",
    )  # fmt: skip


def count_once(call: KernelCall) -> None:
    """Keep torch from adding a gradient twice to tensors whose gradients it is accumulating.

    If that is not possible, torch's backward raises GradientError later.
    """
    for name, tensor in call.tensors.items():
        if torch_writes.is_added_to(tensor):
            torch_writes.count_once(tensor, counted_twice(call, name))


def check_leaves(call: KernelCall) -> None:
    """Raise GradientError for a tensor to whose `.grad` the tape cannot add.

    That is a tensor that torch computed from others, such as a view, without `retain_grad()`. It is
    also one whose gradient torch is accumulating.
    """
    for name, tensor in call.tensors.items():
        if torch_writes.is_added_to(tensor):
            raise counted_twice(call, name)
        if not (tensor.is_leaf or tensor.retains_grad):
            raise GradientError(
                f"{call.name}(): torch computed the tensor `{name}` from others, which its "
                "gradient would not reach", call.kernel.func.span,
                help="pass what it was computed from, or call retain_grad() on it to find the "
                "gradient in its .grad",
            )  # fmt: skip


def make_grads(call: KernelCall) -> None:
    for tensor in call.tensors.values():
        host_views.make_grad(tensor)
