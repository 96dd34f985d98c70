"""Memoization per kernel: analyses and derived kernels that tapes and debug mode need.

`facts` runs the queries of `calls.questions`. A query is a function of a kernel and of plain
values, and its result is plain data. Unless the query may warn, its result is usually stored on
disk (`cache.query_cache`). So the module that reads the IR is only imported for new queries.
`KernelCaches` holds those results, and objects that are not stored on disk.

    facts.touched(kernel, "writes", case_of({"t": 3}, {"x": x}))        # {"x": ((3, 3), (0, 7))}
    call.kernel.derived.find("gradient", spec, make)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from vkchi.analysis.memory.boxes import Shaped
from vkchi.autodiff.results import GradientSpec
from vkchi.cache.query_cache import Answers
from vkchi.compile_state import compiling
from vkchi.hooks import Place, load_place
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.cache.compiled import CacheLocation
    from vkchi.calls import questions as facts
    from vkchi.calls.repeated import RepeatedTapedCall
    from vkchi.launch.compiled_kernel import CompiledKernel
    from vkchi.signature.signer import Key

__all__ = ["CachedQueries", "Case", "KernelCaches", "Names", "case_of", "deciding", "facts"]
V = TypeVar("V")
MOST_NOTES = 256  # limit on `repeated` calls examined per kernel
Names = frozenset[str]
# Key of a call for query results: integers and the shapes of its arrays, by name.
Case = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, tuple[int, ...]], ...]]


def case_of(numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> Case:
    shapes = tuple([(name, array.shape) for name, array in arrays.items()])
    return tuple(numbers.items()), shapes


def deciding(kernel: CompiledKernel, numbers: Mapping[str, int]) -> dict[str, int]:
    """The integers of a call on which the results of queries may depend."""
    names = facts.deciding_integers(kernel) if numbers else ()
    return {name: n for name, n in numbers.items() if name in names}


class CachedQuery(NamedTuple):
    """A query: its function (`place`), the type of its result, and if it depends on a call.

    `form` is the annotation of the result as a string, for `cache.codec`.
    """

    place: Place
    form: str
    is_of_call: bool


class CachedQueries:
    """Proxy for the queries of a module: one attribute per query, which runs it or finds its
    result.

    `of_kernel` and `of_calls` map query names to result types (`CachedQuery.form`). The former
    depend on the kernel alone, the latter on a call, too.
    """

    def __init__(self, module: str, of_kernel: dict[str, str], of_calls: dict[str, str]) -> None:
        for forms in (of_kernel, of_calls):
            for name, form in forms.items():
                question = CachedQuery((module, name), form, forms is of_calls)
                setattr(self, name, partial(run_query, question))


def run_query(question: CachedQuery, kernel: CompiledKernel, *about: Any) -> Any:
    """Return the result of a query, memoized. Exceptions of the query are raised, not memoized."""

    asked = (question.place[1], *about)
    try:
        return kernel.derived.answers.known[asked]
    except KeyError:
        return find_out(question, kernel, about, asked)


def find_out(
    question: CachedQuery, kernel: CompiledKernel, about: tuple[Any, ...], asked: tuple[Any, ...]
) -> Any:
    """Load the result of a query from disk, or run the query; memoize the result."""

    def answer() -> Any:
        with compiling(kernel.derived.title):
            return load_place(question.place)(kernel, *about)

    is_lasting = not any(map(does_warn, about))
    return kernel.derived.answers.find(
        asked, question.form, answer, is_of_call=question.is_of_call, is_lasting=is_lasting
    )


def does_warn(about: object) -> bool:
    """True if a query with this argument may emit warnings, so that its result is not stored on
    disk."""
    request = about.request if isinstance(about, GradientSpec) else None
    return (request.missing if request is not None else about) == "warn"


if not TYPE_CHECKING:
    facts = CachedQueries(
        "calls.questions",
        {
            "along": "ForwardKernel", "arrays_used": "Names", "check_reached": "None",
            "deciding_integers": "Names", "depends_on_order": "bool",
            "differentiated": "CompiledGradient", "fixed_stores": "Names",
            "kinds_of_writes": "dict[str, frozenset[str]]", "marked": "MarkingKernel",
            "invariant": "Names | None", "stores_constants": "bool",
            "strip_mined": "Artifact | None",
        },
        {
            "covering": "int | None", "flow": "FlowTargets", "outflow": "DerivativeOutflow",
            "touched": "dict[str, Box]",
        },
    )  # fmt: skip


class KernelCaches:
    """Memoization for one compiled kernel.

    - `repeated`: data shared by calls with one key. `notes_left` more calls may be examined.
    - `warned`: a registry of Python's `warnings`.
    """

    def __init__(self, title: str, home: CacheLocation | None) -> None:
        self.title, self.answers = title, Answers(home)
        self.repeated: dict[Key | None, RepeatedTapedCall] = {}  # None is no key of an entry
        self.notes_left = MOST_NOTES
        self.warned: dict[Any, Any] = {}
        self.found: dict[tuple[str, Hashable], Any] = {}

    def find(self, kind: str, key: Hashable, make: Callable[[], V]) -> V:
        """Return the object of this kind and key; `make` builds it once."""
        found: V | None = self.found.get((kind, key))
        if found is None:
            with compiling(self.title):
                found = self.found[kind, key] = make()
        return found
