"""Compile options, most of them settings of `ti.init`; those in `IN_CODE` are in cache keys."""

from __future__ import annotations

from typing import Any, Protocol

from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, f32, i32

# Options that compiled code depends on.
IN_CODE = (
    "fast_math",
    "block_dim",
    "exact",
    "debug",
    "check_out_of_bound",
    "first_tier",
    "in_order",
    "strict",
    "nan",
    "python",
)


class CodeStore(Protocol):
    """Protocol of a store of compiled code: a header and bytes for each key."""

    @property
    def version(self) -> str:
        """Version of the compiler."""

    @property
    def device(self) -> str:
        """Name of the device that new entries name."""

    def is_empty(self) -> bool:
        """True if the store has no entries."""

    def of_device(self, name: str) -> CodeStore:
        """Return the same store for another device."""

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Return header and bytes of a key, or None if they are missing or damaged."""

    def peek(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Like `get`, without counting a use."""

    def put(self, key: str, header: dict[str, Any], body: bytes) -> bool:
        """Store an entry; True on success."""

    def remove(self, key: str) -> bool:
        """Remove an entry; True if it existed."""

    def warn(self, text: str) -> None:
        """Warn the user. The store may drop later warnings."""


class Options(NamedTuple):
    """Compile options.

    - debug: emit checks in kernels.
    - check_out_of_bound: emit index checks.
    - fast_math: allow inexact simplifications of floats.
    - block_dim: workgroup size of loops that do not set one; None lets the compiler choose.
    - exact: round every sum and product separately, so that recomputed values are bit-identical.
    - missing_gradient: `error` or `warn`, if a gradient flows through an array without one.
    - accept_races: kernels (`scatter`, `Solver.scatter`, `fluid.Solver.scatter`) whose races cause
      neither errors in gradients nor warnings.
    - first_tier: omit optimizations that only repeated launches repay (`opt.tiers`).
    - in_order: numbers of the parallel loops to compile as serial loops (`races.watch`).
    - nan: report stores of NaN and infinities.
    - strict: report warnings about conversions and constants as errors.
    - python: kernels run as plain Python (`python_mode`).
    - cache: store of compiled code; ignored by comparison and hash.
    """

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
    nan: bool = False
    python: bool = False
    cache: CodeStore | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])

    def accepts_races(self, path: str) -> bool:
        """True if a name in `accept_races` is the end of this path (module, class, name), in whole
        parts."""
        return any(f".{path}".endswith(f".{name}") for name in self.accept_races)

    @property
    def checks_indices(self) -> bool:
        return self.debug or self.check_out_of_bound
