"""Finite differences of a loss, and their comparison with gradients.

The loss is evaluated by repeated calls of `run`:

    check_against_differences(x, x.grad.to_numpy(), central_differences(run, loss, x, None), None)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, GradientError, KernelRuntimeError
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.progress import track
from vkchi.tape.arguments import check_array, set_loss
from vkchi.tape.log import State, launches_in
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.tape.tape import Tape

# Differences of f32 have rounding errors that a smaller step does not reduce.
STEP = {"f64": 1e-5, "f32": 1e-2, "f16": 5e-2}
TOLERANCE = {"f64": 1e-5, "f32": 2e-2, "f16": 1e-1}


def check_tape(tape: Tape) -> None:
    """Compare the gradients of a finished tape with differences, for its inputs `grad_check`.

    The tape's calls are repeated; the arrays get their contents back. Raises GradientError for a
    different gradient. Raises KernelRuntimeError if a call writes a torch tensor with a gradient,
    because such calls are not repeated.
    """
    assert tape.grad_check is not None
    for launch in launches_in(tape.entries):
        for name in sorted(launch.call.tensors.keys() & launch.call.kernel.written):
            raise KernelRuntimeError(
                f"Tape(grad_check=...) does not go through torch tensors, as `{name}` of "
                f"{launch.call.name}(): use ti.ad.gradcheck(run, loss, inputs), which calls the "
                "kernels again"
            )
    end = State(tape.snapshots.start.arrays)
    for x, found in ((x, x.companion("grad")) for x in tape.grad_check):
        assert found is not None
        slopes = central_differences(
            tape.run_again, tape.loss, x, None, tape.snapshots.start.repeat
        )
        end.repeat()
        check_against_differences(x, found.to_numpy(), slopes, None)


def check_inputs(who: str, inputs: Any) -> None:
    if not isinstance(inputs, list | tuple):
        raise ArgumentError(f"{who} must be a list of fields or ndarrays, not {inputs!r}")
    for k, x in enumerate(inputs):
        check_array(f"{who}[{k}]", x)


def central_differences(
    run: Callable[[], Any],
    loss: Any,
    x: Storage,
    step: float | None,
    restore: Callable[[], None] = lambda: None,
) -> np.ndarray[Any, Any]:
    """Central differences of the loss with respect to every scalar in `x`, in f64.

    `run` evaluates the loss, twice per scalar, after `restore`. Without a `step`, it is STEP of the
    dtype. The contents of `x` are restored.
    """
    h = step or STEP[x.dtype.name]
    restore()
    before = x.to_numpy()
    slopes = np.zeros(before.shape, np.float64)
    for place in track(np.ndindex(before.shape), "differences", before.size):
        ends = []
        for sign in (1, -1):
            moved = before.copy()
            moved[place] += sign * h
            restore()
            x.from_numpy(moved)
            set_loss(loss, 0.0)
            with host_views.without_autograd():
                run()
            ends.append(
                (float(moved[place]), float(host_views.to_number_array(loss).reshape(-1)[0]))
            )
        slopes[place] = (ends[0][1] - ends[1][1]) / (ends[0][0] - ends[1][0])
    x.from_numpy(before)
    return slopes


def check_against_differences(
    x: Storage, found: np.ndarray[Any, Any], slopes: np.ndarray[Any, Any], tolerance: float | None
) -> None:
    """Raise GradientError at the first element whose gradient differs from `slopes`.

    The tolerance is relative, and absolute at the scale of the largest slope (at least 1). None is
    TOLERANCE of the dtype.
    """
    limit = tolerance or TOLERANCE[x.dtype.name]
    scale = max(1.0, float(np.abs(slopes).max(initial=0.0)))
    wrong = ~np.isclose(found, slopes, rtol=limit, atol=limit * scale)
    if wrong.any():
        place = tuple(int(k) for k in np.argwhere(wrong)[0])
        rest = place[len(x.shape) :]  # component indices
        index = tuple(k + first for k, first in zip(place, x.origin, strict=False)) + rest
        raise GradientError(
            f"the gradient of {x!r} at {index} is {found[place]:.6g}, and differences give "
            f"{slopes[place]:.6g}: they may where the kernels use ti.stop_grad, casts to integers "
            "or gradients of their own, or where the loss is not smooth"
        )
