"""Output of the compiler as plain data: dispatches, their array bindings, report sites.

Kernels, gradients, race trials and copies compile to an `Artifact`. It holds no live objects:
arrays are names with types, source locations are spans. So artifacts can be pickled, stored on
disk, and run in another process.

    artifact = build_artifact(fn, options, caps)
    Executable(runtime, artifact).record(...)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.reports.sites import ReportSite
from vkchi.span import Span
from vkchi.target.remarks import Caution, LoopCaution
from vkchi.target.shader import Check, Count, Shader
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, Type

OWN_SITES = 1 << 16  # first number of `Artifact.own_sites`


class MemoryFill(NamedTuple):
    """Set the first `size_bytes` bytes of an array to a repeated 32-bit word."""

    name: str
    word: int
    size_bytes: int


class DispatchSize(NamedTuple):
    """Work of a dispatch, for profilers: iterations of its loop, and bytes that it moves at least.
    None: not known at a launch. `is_serial`: it runs a loop in one invocation or workgroup."""

    iterations: Count | None = None
    moved: Count | None = None
    is_serial: bool = False


class Dispatch(NamedTuple):
    """One shader and the names of the array parameters that it reads and writes. `fills`:
    equivalent memory fills, which may run instead of the shader; empty if there are none."""

    shader: Shader
    reads: frozenset[str]
    writes: frozenset[str]
    fills: tuple[MemoryFill, ...] = ()
    size: DispatchSize = DispatchSize()


class IrText(NamedTuple):
    """IR as text, with its spans and name hints.

    `places[k]` is the index in `spans` of the k-th op's span, in text order; the last entry is that
    of the Func. `hints`: the name hints of values, in text order: for each op its results, then the
    parameters of its regions.
    """

    text: str
    spans: tuple[Span | None, ...]
    places: tuple[int, ...]
    hints: tuple[str, ...]


class Artifact(NamedTuple):
    """One compiled Func.

    - arrays: types of the array parameters, by name.
    - temps: types of the temporary arrays that a launch must allocate, by name.
    - sites: remaining report sites, by number, with the index of their dispatch.
    - limits: checks of loop lengths that a launch must make.
    - ir: the source Func, if the caller requested it.
    - work: op counts and how often a launch runs them (`analysis.cost`).
    - own_sites: report sites of code that was added to the Func, numbered from OWN_SITES.
    """

    name: str
    dispatches: tuple[Dispatch, ...]
    arrays: dict[str, Array]
    temps: dict[str, Array]
    sites: dict[int, int]
    limits: tuple[Check, ...]
    ir: IrText | None = None
    work: tuple[tuple[int, Count], ...] = ()
    own_sites: tuple[ReportSite, ...] = ()

    @property
    def used(self) -> frozenset[str]:
        return self.reads | self.writes

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(name for d in self.dispatches for name in d.reads)

    @property
    def writes(self) -> frozenset[str]:
        return frozenset(name for d in self.dispatches for name in d.writes)

    def sites_among(self, known: Sequence[ReportSite]) -> dict[int, ReportSite]:
        """Return the report sites in `sites`, by number, each with the index of its dispatch.
        `known` has the kernel's report sites, by number."""
        if not known and not self.own_sites:
            return {}
        pairs = [
            (n, self.own_sites[n - OWN_SITES] if n >= OWN_SITES else known[n], k)
            for n, k in self.sites.items()
        ]
        return {n: site._replace(dispatch=k) for n, site, k in pairs}


# Source of a parameter's value at launch: ("arg", name); ("grad", name), the gradient of an ndarray
# argument; ("field", function, path), a global of the kernel's source such as `self.grid.v`;
# ("return", index); ("seed",).
Binding = tuple[Any, ...]


class Interface(NamedTuple):
    """Host interface of a kernel: parameters, return types, reports, argument checks.

    - bindings: the value that a launch binds to each parameter, by name.
    - returns: types of the returned scalars, vectors and matrices.
    - results: types of the returned values as the user sees them, structs included.
    - returns_tuple: True if the kernel returns a tuple, even of one value.
    - sites: report sites, by number.
    - checks: conditions on the arguments.
    - cautions: warnings about the kernel's source.
    - loops: warnings about serial loops whose trip count is known at launch.
    """

    bindings: dict[str, Binding]
    returns: tuple[Scalar | Tensor, ...]
    results: tuple[Type, ...]
    returns_tuple: bool
    sites: tuple[ReportSite, ...]
    checks: tuple[Check, ...]
    cautions: tuple[Caution, ...] = ()
    loops: tuple[LoopCaution, ...] = ()

    @property
    def draws(self) -> bool:
        """True if the kernel draws random numbers."""
        return any(binding[0] == "seed" for binding in self.bindings.values())
