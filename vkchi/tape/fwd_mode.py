"""Forward mode: kernels propagate tangents along one direction.

The `dual` of an array holds its tangent:

    with ti.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 0]):
        compute()
    loss.dual[None]                 # d loss / d x[0]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vkchi.calls.call import LaunchRequest
from vkchi.calls.facts import facts
from vkchi.errors import KernelRuntimeError
from vkchi.fields.storage import Storage
from vkchi.hooks import python_scope
from vkchi.races.finder import check_forward_race
from vkchi.runtime import current_runtime
from vkchi.tape.adjoints import clear_arrays
from vkchi.tape.ledger import Index
from vkchi.tape.log import clear_elements
from vkchi.tape.recording import Recording
from vkchi.tape.requirements import check_alone, check_array, numbers_like
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np


@python_scope
class FwdMode(Recording):
    """Forward-mode differentiation of the kernels called inside `with`.

    Kernels also compute the `dual` of every array they write that has one: the derivative of its
    elements along the direction `seed` of `param`. Source: Taichi's `ti.ad.FwdMode`.

    Args:
        loss: one or several fields that hold results.
        param: a field with a dual.
        seed: one number per scalar of param (None: 1, for a param of one number).
        clear_gradients: set all duals to 0 first.

    Raises:
        KernelRuntimeError: for a seed of wrong length or if a recording is active.
        ArgumentError: for missing duals or a seed that is not of numbers.
        GradientError: if a tangent would be wrong.
    """

    title, kind = "ti.ad.FwdMode", "dual"

    def __init__(
        self, loss: Storage | Sequence[Storage], param: Storage,
        seed: Sequence[float] | None = None, clear_gradients: bool = True,
    ) -> None:  # fmt: skip
        given: Any = loss
        self.losses: list[Storage] = list(given) if isinstance(given, list | tuple) else [given]
        self.param: Any = param
        self.seed, self.clear_gradients = seed, clear_gradients
        super().__init__(current_runtime())

    def __enter__(self) -> FwdMode:
        if self.state != "new":
            raise KernelRuntimeError("forward mode can be entered once: make a new ti.ad.FwdMode")
        check_alone(self.runtime, self.title)
        for field in self.losses:
            check_array("ti.ad.FwdMode: the loss", field, "dual")
        check_array("ti.ad.FwdMode: param", self.param, "dual")
        direction = direction_of(self.param, self.seed)
        if self.clear_gradients:
            clear_arrays(self.runtime.duals)
        self.param.dual.from_numpy(direction)
        self.enter()
        return self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """End the block and clear the direction, unless it shares memory with a result.

        Raises GradientError if a loss was overwritten with unknown values, unless another exception
        ends the block.
        """
        try:
            if kind is None:
                self.end(self.losses)
        finally:
            self.close()
            duals = [loss.companion("dual") for loss in self.losses]
            if not any(d is not None and d.whole is self.param.dual.whole for d in duals):
                self.param.dual.fill(0)

    def launch_noted(self, given: LaunchRequest) -> Any:
        from vkchi.calls.variant import plan_forward

        call = given.call
        duals = {k: d for k, a in call.arrays.items() if (d := a.companion("dual")) is not None}
        names = frozenset(duals)
        found = plan_forward(call, duals, self.title)
        met = self.check(call, names)
        race = self.races.look(call, names, None)
        check_forward_race(race, duals)
        result = found.run_along(call, given.args, duals)
        self.protect(f"{call.name}()", call.kernel.written, call.arrays, {})
        self.note(call, facts.outflow(call.kernel, names, call.case), {}, met)
        return result

    def cut(self, array: Storage, at: Index | None) -> None:
        dual = array.companion("dual")
        assert dual is not None
        clear_elements(dual, at)

    def call_custom(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of `grad_replaced` or `no_grad` like any other and return its result.

        Its kernels are differentiated.
        """
        return function.__wrapped__(*args, **kwargs)


def direction_of(param: Storage, seed: Sequence[float] | None) -> np.ndarray[Any, Any]:
    """The seed in the shape of the parameter, components included.

    Raises KernelRuntimeError for a wrong length, ArgumentError if it does not consist of numbers.
    """
    shape = param.shape + shape_of(param.elem)
    count = math.prod(shape)
    if seed is None and count != 1:
        raise KernelRuntimeError(
            f"ti.ad.FwdMode needs a seed of {count} numbers, one for each of the parameter: "
            "seed=[1, 0, ...] for the derivative by the first"
        )
    values = numbers_like("ti.ad.FwdMode: the seed", param, [1.0] if seed is None else seed)
    if values.size != count:
        raise KernelRuntimeError(
            f"ti.ad.FwdMode needs a seed of {count} numbers, not of {values.size}"
        )
    return values.reshape(shape)
