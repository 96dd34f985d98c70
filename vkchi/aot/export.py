"""`ti.aot.export`: kernels marked in a file, to be put into a module later.

Owns: the list of marked kernels. Must not know: modules.

    @ti.aot.export
    @ti.kernel
    def step(x: ti.types.ndarray(ti.f32, 1)): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.kernel import Kernel
from vkchi.signature.wording import describe
from vkchi.tuples import NamedTuple


class Exported(NamedTuple):
    """A kernel, its name in modules, and its template arguments."""

    kernel: Kernel
    name: str
    template_types: Mapping[str, Any]


EXPORTED: list[Exported] = []


def export_as(
    name: str, *, template_types: Mapping[str, Any] | None = None
) -> Callable[[Kernel], Kernel]:
    """A decorator that marks a kernel under a name; `Module.add_exported` adds all that are marked.

    Raises ArgumentError for what is no kernel. Source: Taichi's `ti.aot.export_as`.
    """

    def mark(kernel: Kernel) -> Kernel:
        if not isinstance(kernel, Kernel):
            raise ArgumentError(f"ti.aot.export marks kernels, not {describe(kernel)}")
        EXPORTED.append(Exported(kernel, name, template_types or {}))
        return kernel

    return mark


def export(kernel: Kernel) -> Kernel:
    """Mark a kernel, under its own name."""
    return export_as(getattr(kernel, "__name__", ""))(kernel)
