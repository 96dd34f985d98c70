"""`ti.ad.gradcheck`: comparison of gradients with finite differences.

ti.ad.gradcheck(run, loss, [x])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.fields.storage import Storage
from vkchi.hooks import python_scope
from vkchi.runtime import current_runtime
from vkchi.tape.differences import central_differences, check_against_differences, check_inputs
from vkchi.tape.requirements import check_alone, check_run
from vkchi.tape.tape import Tape

if TYPE_CHECKING:
    from vkchi.types.hints import Tensors


@python_scope
def gradcheck(
    run: Callable[[], object],
    loss: Storage | Tensors,
    inputs: Sequence[Storage] | Storage,
    *,
    step: float | None = None,
    tolerance: float | None = None,
) -> None:
    """Compare the gradients of `loss` with respect to `inputs` with central differences.

    Args:
        run: calls the kernels; its loss must depend only on the inputs.
        loss: a field, ndarray or tensor of one number.
        inputs: one or several fields or ndarrays with gradients; their contents are restored.
        step: step of the differences, by default chosen by dtype.
        tolerance: relative tolerance, also absolute at the scale of the largest derivative (at
            least 1). By default chosen by dtype.

    Raises:
        GradientError: for the first element that differs.
        ArgumentError: for an invalid `run`, `loss` or `inputs`.
        KernelRuntimeError: if a recording is active, or for a loss that is not one number.
    """
    check_alone(current_runtime(), "ti.ad.gradcheck")
    check_run("ti.ad.gradcheck", run)
    given: Any = [inputs] if isinstance(inputs, Storage) else inputs
    check_inputs("ti.ad.gradcheck: inputs", given)
    saved = [x.to_numpy() for x in given]
    with Tape(loss):
        run()
    gradients = [x.grad.to_numpy() for x in given]
    for x, before, found in zip(given, saved, gradients, strict=True):
        x.from_numpy(before)
        check_against_differences(x, found, central_differences(run, loss, x, step), tolerance)
