"""Torch's side of operators: `torch.library`, where torch is there and new enough.

Owns: the import and its error. Must not know: kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from vkchi.errors import MissingPackageError
from vkchi.interrupts.imports import import_whole


def torch_library() -> Any:
    """The module `torch.library`. Raises MissingPackageError without torch 2.4 or later."""
    library: Any = None
    with suppress(ImportError):
        library = import_whole("torch.library")
    if not hasattr(library, "custom_op"):
        raise MissingPackageError("ti.torch_op needs torch 2.4 or later: pip install torch")
    return library


def stack(tensors: Sequence[Any]) -> Any:
    """Tensors of one shape along a new first axis."""
    import torch

    return torch.stack(list(tensors))
