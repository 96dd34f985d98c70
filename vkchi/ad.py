"""`ti.ad`: differentiation. Names only."""

from vkchi.autodiff.check import gradcheck
from vkchi.autodiff.custom import grad_for, grad_replaced, no_grad
from vkchi.autodiff.direction import FwdMode
from vkchi.autodiff.second import hvp
from vkchi.autodiff.tape import Tape, clear_all_gradients
from vkchi.errors import GradientError, GradientWarning

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
