"""Gradients from before, put aside while a tape computes its own.

Owns: `Leftovers`. What stands in the gradient of an array that a tape writes would flow on through
the tape's kernels, though it belongs to other losses; it is added again afterwards. Gradients of
arrays that are only read are just added to. Must not know: tapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.tape.calls import companion, copy_of
from vkchi.tape.copies import add_back


class Leftovers:
    """The gradients of some arrays and of some torch tensors, which are 0 from now on."""

    def __init__(self, arrays: Iterable[Storage], tensors: Iterable[Any]) -> None:
        gradients = [g for a in arrays if (g := companion(a, "grad")) is not None]
        self.arrays = [(gradient, copy_of(gradient)) for gradient in gradients]
        self.tensors = [(t, t.grad) for t in tensors if t.grad is not None]
        for gradient, _ in self.arrays:
            gradient.fill(0)
        for tensor, _ in self.tensors:
            tensor.grad = None

    def add(self) -> None:
        """Add them again."""
        for gradient, copy in self.arrays:
            add_back(gradient, copy)
        for tensor, gradient in self.tensors:
            new, tensor.grad = tensor.grad, gradient
            if new is not None:
                host.write_grad(tensor, gradient.detach() + new)
