"""Compile options: what `ti.init` sets and compiled code depends on. Hashable: part of cache keys.

Must not know: devices.
"""

from __future__ import annotations

from typing import Any, Protocol

from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, f32, i32

# Those that code depends on.
IN_CODE = (
    "fast_math",
    "block_dim",
    "exact",
    "debug",
    "check_out_of_bound",
    "first_tier",
    "in_order",
    "strict",
)


class Shelf(Protocol):
    """Where compiled code is kept: bytes with a header, by key."""

    @property
    def version(self) -> str:
        """The compiler's."""

    @property
    def device(self) -> str:
        """The name of the device that the program runs on."""

    def is_empty(self) -> bool:
        """Whether nothing is kept."""

    def of_device(self, name: str) -> Shelf:
        """The same shelf, for a program on this device."""

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """What is kept under a key, if it is whole."""

    def peek(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The same, where it is not to be used."""

    def put(self, key: str, header: dict[str, Any], body: bytes) -> bool:
        """Keep something; whether that was possible."""

    def remove(self, key: str) -> bool:
        """Drop something; whether it was there."""

    def warn(self, text: str) -> None:
        """Tell the user that something is wrong, once."""


class Options(NamedTuple):
    """`debug` asks for checks in kernels, `check_out_of_bound` for those of indices; `fast_math`
    lets simplification be inexact; `block_dim` is the workgroup size where a loop does not say
    (None: chosen by the compiler); `exact` rounds every sum and product by itself, so that what is
    computed twice is the same; `missing_gradient` is `error` or `warn`, where a gradient flows
    through an array that has none; `accept_races` names kernels (`scatter`, `Solver.scatter`,
    `fluid.Solver.scatter`) whose races are neither refused in gradients nor warned of;
    `first_tier` leaves out what only repeated launches repay (`passes.tiers`), for those who count
    launches; `in_order` are the numbers of parallel loops of a kernel that are compiled as serial
    ones (`races.watch`); `strict` makes errors of warnings about conversions. `cache` is where
    compiled code is kept, on which it does not depend."""

    default_fp: Scalar = f32
    default_ip: Scalar = i32
    debug: bool = False
    check_out_of_bound: bool = False
    fast_math: bool = False
    random_seed: int = 0
    block_dim: int | None = None
    exact: bool = False
    missing_gradient: str = "error"
    accept_races: tuple[str, ...] = ()
    first_tier: bool = False
    in_order: tuple[int, ...] = ()
    strict: bool = False
    cache: Shelf | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])

    def accepts_races(self, path: str) -> bool:
        """Whether `accept_races` has the kernel of this path: module, class, name."""
        return any(f".{path}".endswith(f".{name}") for name in self.accept_races)

    @property
    def checks_indices(self) -> bool:
        """Whether kernels check their indices."""
        return self.debug or self.check_out_of_bound
