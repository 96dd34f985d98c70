"""Device capabilities: one flat, hashable record, usable as part of a cache key.

`vk.physical` fills it; passes, the emitter and the launch path read it.

    >>> SMALLEST.int64
    False
"""

from __future__ import annotations

from typing import TypeVar

from vkchi.tuples import NamedTuple
from vkchi.types.core import SCALARS

N = TypeVar("N", int, float)

KINDS = ("other", "integrated", "discrete", "virtual", "cpu")  # in VkPhysicalDeviceType's order


class Caps(NamedTuple):
    """Capabilities and limits of a device. The defaults are Vulkan's minimal limits, subgroups of 4
    lanes, no optional feature, and no defect of the driver."""

    kind: str = "other"  # one of KINDS
    # arithmetic types
    int8: bool = False
    int16: bool = False
    int64: bool = False
    float16: bool = False
    float64: bool = False
    # types in memory (buffers reached by device address)
    storage8: bool = False
    storage16: bool = False
    scalar_alignment: bool = False  # vectors may be aligned as their scalars (scalarBlockLayout)
    # False: a cast of a pointer to an element is miscompiled (MoltenVK); such devices have int64
    chain_casts: bool = True
    # atomics on buffers and on workgroup (shared) memory
    f32_atomic_add: bool = False
    f32_atomic_add_shared: bool = False
    f64_atomic_add: bool = False
    f32_atomic_minmax: bool = False
    i64_atomics: bool = False
    i64_atomics_shared: bool = False
    # subgroups: the size that size-dependent shaders are compiled for; the device's range of sizes
    subgroup_size: int = 4
    subgroup_least: int = 4
    subgroup_most: int = 4
    subgroup_arithmetic: bool = False
    subgroup_ballot: bool = False
    subgroup_shuffle: bool = False
    subgroup_shuffle_relative: bool = False
    subgroup_vote: bool = False
    subgroup_wide: bool = False  # reductions and scans of 64-bit integers
    # False: operations may move into one side of a select, away from other invocations (MoltenVK)
    subgroup_at_once: bool = True
    subgroup_scans: bool = True  # False: scans of min, max, and, or, xor are missing (MoltenVK)
    # False: integer min and max are broken (SwiftShader, in loops with a constant operand)
    integer_extremes: bool = True
    # float behaviour
    zero_dividends: bool = True  # False: 0.0 / x is folded to 0, even for 0 and NaN (lavapipe)
    signed_zero_inf_nan_f32: bool = False
    # limits
    push_constant_bytes: int = 128
    workgroup_invocations: int = 128
    workgroup_size: tuple[int, int, int] = (128, 128, 64)
    workgroup_count: tuple[int, int, int] = (65535, 65535, 65535)
    shared_bytes: int = 16384

    @property
    def is_cpu(self) -> bool:
        """True for software drivers, False for GPUs of all kinds."""
        return self.kind == "cpu"

    # Properties of CPUs and GPUs, by which passes choose; each is one that both kinds may change.

    @property
    def scalar_lanes(self) -> bool:
        """True if a subgroup is a vector of a thread, whose lanes access memory one by one."""
        return self.is_cpu

    @property
    def serial_groups(self) -> bool:
        """True if a thread runs a workgroup, a subgroup of a row at a time."""
        return self.is_cpu

    @property
    def costly_invocations(self) -> bool:
        """True if starting an invocation costs more than an iteration of a loop."""
        return self.is_cpu

    @property
    def slow_compiler(self) -> bool:
        """True if compiling a dispatch takes as long as many launches."""
        return self.is_cpu

    @property
    def branches_cheap(self) -> bool:
        """True if a branch does not keep later loads from overlapping."""
        return self.is_cpu

    @property
    def loads_block(self) -> bool:
        """True if a load waits for the stores before it; False if code runs out of order."""
        return not self.is_cpu

    @property
    def slow_division(self) -> bool:
        """True if an integer division costs more than a branch."""
        return self.is_cpu

    @property
    def wide_multiply(self) -> bool:
        """True if a 64-bit product costs no more than the upper half of a 32-bit one."""
        return self.is_cpu

    @property
    def slow_float_minmax(self) -> bool:
        """True if float min and max cost more than a comparison and a select."""
        return self.is_cpu

    @property
    def wide_subgroups(self) -> bool:
        """True if subgroups have so many lanes that their communication saves atomics."""
        return not self.is_cpu

    @property
    def fills_by_command(self) -> bool:
        """True if a fill command is faster than a small dispatch."""
        return self.is_cpu

    def choose(self, pair: tuple[N, N]) -> N:
        """Return the first value of a pair for a CPU, the second for a GPU."""
        return pair[0 if self.is_cpu else 1]

    @property
    def ballot_fits_word(self) -> bool:
        """True if a subgroup ballot (one bit per invocation) fits in 32 bits."""
        return self.subgroup_size <= 32

    @property
    def ballot_exceeds_word(self) -> bool:
        return not self.ballot_fits_word

    @property
    def ballot_fits_long(self) -> bool:
        """True if the device has 64-bit integers and a subgroup ballot fits in one."""
        return self.int64 and self.subgroup_size <= 64

    def has_type(self, name: str) -> bool:
        """True if the device has arithmetic on the scalar type called `name`."""
        needed = SCALARS[name].arithmetic_cap
        return not needed or bool(getattr(self, needed))

    def can_store(self, name: str) -> bool:
        """True if buffers can hold scalars of the type called `name`."""
        needed = SCALARS[name].storage_cap
        has_storage = not needed or bool(getattr(self, needed))
        return has_storage and self.has_type(name)  # spirv-val requires both for pointers to bytes


SMALLEST = Caps()
FULL = Caps(
    kind="discrete",
    int8=True, int16=True, int64=True, float16=True, float64=True, storage8=True, storage16=True,
    scalar_alignment=True,
    f32_atomic_add=True, f32_atomic_add_shared=True, f64_atomic_add=True, i64_atomics=True,
    i64_atomics_shared=True, subgroup_size=32, subgroup_least=32, subgroup_most=32,
    subgroup_arithmetic=True, subgroup_ballot=True,
    subgroup_shuffle=True, subgroup_shuffle_relative=True, subgroup_vote=True,
    subgroup_wide=True,
    push_constant_bytes=256, workgroup_invocations=1024,
    workgroup_size=(1024, 1024, 64), shared_bytes=49152,
)  # fmt: skip
