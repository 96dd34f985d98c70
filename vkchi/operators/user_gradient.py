"""Launch of a user's gradient kernel with fields restored to their state in the forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.calls.call import LaunchRequest, describe_call
from vkchi.calls.facts import facts
from vkchi.calls.variant import Variant
from vkchi.errors import TensorGradientError
from vkchi.fields.array_versions import lock_writers
from vkchi.fields.storage import Storage
from vkchi.kernel import launch_or_record
from vkchi.launch.compiled_kernel import NOTHING_SHARED, CompiledKernel
from vkchi.operators.field_snapshots import FieldSnapshots
from vkchi.signature.bound import ImportedArray
from vkchi.tape.custom import first_load, is_redefined


def run_with_snapshots(
    memory: FieldSnapshots,
    name: str,
    kernel: CompiledKernel,
    args: tuple[Any, ...],
    shared: Sequence[ImportedArray] = NOTHING_SHARED,
) -> None:
    """Launch a gradient kernel on fields as they were in the forward pass.

    Raises TensorGradientError if it may read the old contents of a field that were not saved.
    Raises it also if it may read the old contents of a changed field that it writes. Waits for the
    device if a field has changed.
    """
    with lock_writers(kernel.runtime):
        _run(memory, name, kernel, args, shared)


def _run(
    memory: FieldSnapshots,
    name: str,
    kernel: CompiledKernel,
    args: tuple[Any, ...],
    shared: Sequence[ImportedArray],
) -> None:
    changed = find_changed(memory, name, kernel, args)
    if not changed:
        if kernel.runtime.recording is None:
            kernel.launch_in_place(args, shared)
        else:
            launch_or_record(name, kernel, args)
        return
    call, device = describe_call(name, kernel, args, shared), kernel.runtime.device
    owners = [one.owner for one in shared]
    held = device.heap.hold(owners)
    Variant(call, kernel.artifact).run(call, {**call.arrays, **changed})
    device.wait()
    owners.clear()
    del held


def find_changed(
    memory: FieldSnapshots, name: str, kernel: CompiledKernel, args: tuple[Any, ...]
) -> dict[str, Storage]:
    """Saved contents, by name, of the fields that a kernel reads and that have changed since.
    Raises TensorGradientError as `run_with_snapshots` does."""
    fields, changed = kernel.fields(args), {}
    for key in sorted(fields.keys() & facts.arrays_used(kernel)):
        then = memory.find(fields[key])
        is_known = memory.knows(fields[key])
        if is_known and then is fields[key]:
            continue
        if key not in kernel.written and is_known:
            changed[key] = then
        elif not is_redefined(LaunchRequest(name, kernel, args), key):
            raise unreadable_field_error(memory, kernel, key, is_known=is_known)
    return changed


def unreadable_field_error(
    memory: FieldSnapshots, kernel: CompiledKernel, key: str, *, is_known: bool
) -> TensorGradientError:
    span = first_load(kernel, key)
    if not is_known:
        return memory.unknown(key, span)
    return TensorGradientError(
        f"the gradient of {memory.who}() reads and writes the field `{key}`, which was changed "
        "since the forward pass", span,
        help=f"leave `{key}` as it is between the two, or have the operator return what it holds "
        "as an output",
    )  # fmt: skip
