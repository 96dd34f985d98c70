"""`ti.ad`: differentiation. Names only."""

from vkchi.errors import GradientError, GradientWarning
from vkchi.tape.custom import grad_for, grad_replaced, no_grad
from vkchi.tape.fwd_mode import FwdMode
from vkchi.tape.gradcheck import gradcheck
from vkchi.tape.hvp import hvp
from vkchi.tape.tape import Tape, clear_all_gradients

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
