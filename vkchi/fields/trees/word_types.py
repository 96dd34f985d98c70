"""Word types of bit-packed numbers.

word_of(runtime, 32)        # u32
"""

from __future__ import annotations

from vkchi.errors import ArgumentError, DeviceError
from vkchi.runtime import Runtime
from vkchi.types import Scalar, u32, u64


def word_of(runtime: Runtime, bits: int) -> Scalar:
    """The unsigned integer type for packed words of 32 or 64 bits. Raises ArgumentError for other
    widths, DeviceError if the device lacks 64-bit integers with atomics."""
    caps = runtime.device.caps
    if type(bits) is not int or bits not in (32, 64):
        raise ArgumentError(f"max_num_bits= is 32 or 64, not {bits!r}")
    if bits == 64 and not (caps.int64 and caps.i64_atomics):
        raise DeviceError(
            f"{runtime.device.info.name} has no 64-bit integers with atomic operations, which "
            "words of 64 bits need: use max_num_bits=32"
        )
    return u32 if bits == 32 else u64
