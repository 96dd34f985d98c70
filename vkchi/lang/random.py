"""Random numbers in kernels: each invocation has its own stream, seeded by `ti.init`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.lang.function import kernel_function, language_function

if TYPE_CHECKING:
    from vkchi.protocols import Random
    from vkchi.types.hints import ScalarDType

random: Random = language_function(
    "random", None, "A float in [0, 1), or an integer of `dtype` with every bit random."
)


@kernel_function
def randn(dt: ScalarDType | None = None) -> float:  # type: ignore[empty-body]
    """A float of type `dt`, by default default_fp, with the standard normal distribution."""
