"""The `ti.ad` namespace. All its names but the errors are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import GradientError, GradientWarning
from vkchi.hooks import load_place

if TYPE_CHECKING:
    from vkchi.tape.custom import grad_for, grad_replaced, no_grad
    from vkchi.tape.fwd_mode import FwdMode
    from vkchi.tape.gradcheck import gradcheck
    from vkchi.tape.hvp import hvp
    from vkchi.tape.tape import Tape, clear_all_gradients

PLACES = {
    "grad_for": "custom", "grad_replaced": "custom", "no_grad": "custom", "FwdMode": "fwd_mode",
    "gradcheck": "gradcheck", "hvp": "hvp", "Tape": "tape", "clear_all_gradients": "tape",
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
    "no_grad",
]


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = load_place((f"tape.{PLACES[name]}", name))
    return found


def __dir__() -> list[str]:
    return __all__
