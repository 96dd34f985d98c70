"""Leaves of torch's graph while torch goes backward: a kernel's gradient may write the `.grad` of
one to which torch will add what an operation's backward returns.

Returned, that `.grad` is to count once: torch would add it to itself. What comes with it from other
operations cannot be told apart any more, and is refused. Must not know: kernels.

    if is_added_to(tensor):
        count_once(tensor, error)
"""

from __future__ import annotations

import sys
from typing import Any

from vkchi.interrupts.local import local


def is_added_to(tensor: Any) -> bool:
    """Whether torch is going backward through its graph now, and may add to a tensor's `.grad`."""
    if not (tensor.is_leaf and tensor.requires_grad):
        return False
    torch = sys.modules["torch"]
    try:
        if torch._C._current_graph_task_id() == -1:
            return False
        node = torch.autograd.graph.get_gradient_edge(tensor).node
        return bool(torch._C._will_engine_execute_node(node))
    except local(AttributeError, RuntimeError):  # another version of torch; torch.autograd.grad()
        return False


def count_once(tensor: Any, error: Exception) -> None:
    """Let the `.grad` of a leaf, as it is now, count once when torch comes to add to it in this
    pass: nothing is added where it is put aside before, or not returned.

    What torch adds is the sum of all that operations returned for the leaf. If that lies where the
    `.grad` lies, it is the `.grad` itself; else `error` is raised out of torch's backward.
    """
    written = tensor.grad

    def look(sum_: Any) -> None:
        if sum_ is None or tensor.grad is not written:
            return
        if sum_.data_ptr() != written.data_ptr():
            raise error
        tensor.grad = None  # for torch to put it there

    handle = tensor.register_hook(look)
    sys.modules["torch"].autograd.Variable._execution_engine.queue_callback(handle.remove)
