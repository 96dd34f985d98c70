"""Forward mode: kernels that carry derivatives along one direction.

Owns: `FwdMode`. Must not know: how derivatives are built.

    with ti.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 0]):
        compute()
    loss.dual[None]                 # d loss / d x[0]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkchi.autodiff.calls import companion, describe_call, usable
from vkchi.autodiff.copies import copy_floats
from vkchi.autodiff.keeper import Keeper
from vkchi.autodiff.overwrites import Overwrites
from vkchi.autodiff.taints import Taints, missing_dual
from vkchi.errors import KernelRuntimeError
from vkchi.fields.storage import Access, Storage
from vkchi.launch import Plan
from vkchi.runtime import Runtime, current
from vkchi.types import shape_of


class FwdMode:
    """Kernels called inside `with` also compute, in the `dual` of every field that has one, the
    derivative of its elements along the direction `seed` of `param`.

    loss: one field or several, of results; param: a field with a dual; seed: as many numbers as
    param has (None: 1, for a param of one number); clear_gradients: set all duals to 0 first.
    Raises KernelRuntimeError for a wrong seed or missing duals, GradientError where an operation
    has no derivative. Source: Taichi's `ti.ad.FwdMode`.
    """

    is_paused = True  # functions with gradients of their own are run as they are

    def __init__(
        self, loss: Any, param: Any, seed: Sequence[float] | None = None,
        clear_gradients: bool = True,
    ) -> None:  # fmt: skip
        self.losses = list(loss) if isinstance(loss, list | tuple) else [loss]
        self.param, self.seed, self.clear_gradients = param, seed, clear_gradients
        self.runtime: Runtime = current()
        self.is_new, self.taints, self.overwrites = True, Taints(), Overwrites("dual")
        self.keeper = Keeper(None, self.accessed)

    def __enter__(self) -> FwdMode:
        if not self.is_new:
            raise KernelRuntimeError("forward mode can be entered once: make a new ti.ad.FwdMode")
        if self.runtime.tape is not None:
            raise KernelRuntimeError("leave the other ti.ad.Tape or ti.ad.FwdMode first")
        for field in (*self.losses, self.param):
            if not isinstance(field, Storage) or companion(field, "dual") is None:
                raise KernelRuntimeError(
                    f"ti.ad.FwdMode needs fields with needs_dual=True, not {field!r}"
                )
        direction = direction_of(self.param, self.seed)
        if self.clear_gradients:
            clear_duals(self.runtime)
        self.param.dual.from_numpy(direction)
        self.is_new, self.runtime.tape = False, self
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.runtime.tape = None
        self.keeper.close()
        self.param.dual.fill(0)

    def launch(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Any:
        """Run a kernel with derivatives."""
        from vkchi.autodiff.variants import ForwardPlan

        call = describe_call(name, plan, args)
        duals = {k: d for k, a in call.arrays.items() if (d := companion(a, "dual")) is not None}
        key = ("forward", frozenset(duals))
        found = plan.derived.get(key)
        if found is None:
            missing_dual(call, frozenset(duals))
            found = plan.derived[key] = ForwardPlan(call, duals)
        self.taints.check(call, frozenset(duals), "dual")
        self.overwrites.check_call(call, frozenset(duals))
        result = found.run(call, duals)
        self.taints.note(call, found.active.escapes)
        for array in self.overwrites.note_call(call, found.active.stores, {}):
            self.keeper.watch(array)
        return result

    def accessed(self, array: Storage, access: Access) -> None:
        """Python is about to access an array: what it writes there has no derivative."""
        for cut in self.overwrites.note_access(array, access):
            cut.run()

    def copy(self, target: Storage, source: Storage) -> bool:
        """Copy floats with their derivatives, in a kernel; whether it was done."""
        return copy_floats(target, source)


def direction_of(param: Storage, seed: Sequence[float] | None) -> np.ndarray[Any, Any]:
    """The seed as an array like the parameter. Raises KernelRuntimeError for a wrong length."""
    shape = param.shape + shape_of(param.elem)
    count = math.prod(shape)
    if seed is None and count != 1:
        raise KernelRuntimeError(
            f"ti.ad.FwdMode needs a seed of {count} numbers, one for each of the parameter: "
            "seed=[1, 0, ...] for the derivative by the first"
        )
    values = np.asarray([1.0] if seed is None else seed, param.dtype.dtype)
    if values.size != count:
        raise KernelRuntimeError(
            f"ti.ad.FwdMode needs a seed of {count} numbers, not of {values.size}"
        )
    return values.reshape(shape)


def clear_duals(runtime: Runtime) -> None:
    """Set all duals to 0."""
    for array in usable(runtime.duals):
        array.fill(0)
