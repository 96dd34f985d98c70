"""`ti.aot.export`: decorator that marks kernels for `Module.add_exported`.

Example:

    @ti.aot.export
    @ti.kernel
    def step(x: ti.types.ndarray(ti.f32, 1)): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.kernel import Kernel
from vkchi.signature.wording import describe_argument
from vkchi.tuples import NamedTuple


class Exported(NamedTuple):
    """A marked kernel, its name in modules, and its template arguments."""

    kernel: Kernel
    name: str
    template_types: Mapping[str, Any]


EXPORTED: list[Exported] = []


def export_as(
    name: str, *, template_types: Mapping[str, Any] | None = None
) -> Callable[[Kernel], Kernel]:
    """Return a decorator that marks a kernel under `name`, for `Module.add_exported`; it returns
    the kernel.

    template_types: template arguments, as in `Module.add_kernel`. The decorator raises
    ArgumentError for anything but a kernel. Source: Taichi's `ti.aot.export_as`.
    """

    def mark(kernel: Kernel) -> Kernel:
        if not isinstance(kernel, Kernel):
            raise ArgumentError(f"ti.aot.export marks kernels, not {describe_argument(kernel)}")
        EXPORTED.append(Exported(kernel, name, template_types or {}))
        return kernel

    return mark


def export(kernel: Kernel) -> Kernel:
    """Mark `kernel` under its own name and return it. Raises ArgumentError for anything but a
    kernel."""
    return export_as(getattr(kernel, "__name__", ""))(kernel)
