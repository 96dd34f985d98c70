"""Correct accumulation of leaf gradients that a kernel's gradient writes during torch's backward.

A kernel's gradient may write the `.grad` of a leaf tensor directly. If an operation's backward then
returns that same `.grad`, torch would add it to itself. `count_once` prevents this. If other
operations contribute to the leaf too, it raises an error.

    if is_added_to(tensor):
        count_once(tensor, error)
"""

from __future__ import annotations

import sys
from typing import Any

from vkchi.interrupts.local import local


def is_added_to(tensor: Any) -> bool:
    """True if the running backward pass of torch will add to the `.grad` of this leaf. False for
    other tensors, without a running pass, and if torch gives no answer."""
    if not (tensor.is_leaf and tensor.requires_grad):
        return False
    torch = sys.modules["torch"]
    try:
        if torch._C._current_graph_task_id() == -1:
            return False
        node = torch.autograd.graph.get_gradient_edge(tensor).node
        return bool(torch._C._will_engine_execute_node(node))
    except local(AttributeError, RuntimeError):  # other versions of torch; torch.autograd.grad()
        return False


def count_once(tensor: Any, error: Exception) -> None:
    """Count the present `.grad` of a leaf once if torch adds to it in this backward pass.

    A hook, removed after the pass, gets the sum that torch is about to add. If the sum is in the
    memory of `.grad`, the hook sets `.grad` to None, and torch stores the sum. Otherwise it raises
    `error` out of torch's backward. No effect if `.grad` was replaced.
    """
    written = tensor.grad

    def look(sum_: Any) -> None:
        if sum_ is None or tensor.grad is not written:
            return
        if sum_.data_ptr() != written.data_ptr():
            raise error
        tensor.grad = None  # torch then stores the sum

    handle = tensor.register_hook(look)
    sys.modules["torch"].autograd.Variable._execution_engine.queue_callback(handle.remove)
