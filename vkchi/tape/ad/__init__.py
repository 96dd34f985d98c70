"""The `ti.ad` namespace, and the function `gradcheck`. Other modules are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import GradientError, GradientWarning
from vkchi.hooks import load_place, python_scope

if TYPE_CHECKING:
    from vkchi.fields.storage import Storage
    from vkchi.tape.ad.functional import jvp, vjp
    from vkchi.tape.custom import grad_for, grad_replaced, no_grad
    from vkchi.tape.forward import FwdMode, hvp
    from vkchi.tape.tape import Tape, clear_all_gradients
    from vkchi.types.hints import Tensors

PLACES = {
    "grad_for": "custom", "grad_replaced": "custom", "no_grad": "custom", "FwdMode": "forward",
    "hvp": "forward", "jvp": "ad.functional", "vjp": "ad.functional", "Tape": "tape",
    "clear_all_gradients": "tape",
}  # fmt: skip
__all__ = [
    "FwdMode",
    "GradientError",
    "GradientWarning",
    "Tape",
    "clear_all_gradients",
    "grad_for",
    "grad_replaced",
    "gradcheck",
    "hvp",
    "jvp",
    "no_grad",
    "vjp",
]


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = load_place((f"tape.{PLACES[name]}", name))
    return found


def __dir__() -> list[str]:
    return __all__


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
    from vkchi.fields.storage import Storage
    from vkchi.runtime import current_runtime
    from vkchi.tape import arguments
    from vkchi.tape.ad import differences
    from vkchi.tape.tape import Tape

    arguments.check_alone(current_runtime(), "ti.ad.gradcheck")
    arguments.check_run("ti.ad.gradcheck", run)
    given: Any = [inputs] if isinstance(inputs, Storage) else inputs
    differences.check_inputs("ti.ad.gradcheck: inputs", given)
    saved = [x.to_numpy() for x in given]
    with Tape(loss):
        run()
    gradients = [x.grad.to_numpy() for x in given]
    for x, before, found in zip(given, saved, gradients, strict=True):
        x.from_numpy(before)
        slopes = differences.central_differences(run, loss, x, step)
        differences.check_against_differences(x, found, slopes, tolerance)
