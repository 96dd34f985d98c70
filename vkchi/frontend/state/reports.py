"""Reports from kernels to the host: `print`, and the ops that emit a report.

A site (`vkchi.reports.sites`) has the constant part of a report; the op has its values.

    cx.reports.emit_unless(cx, ok, "bounds", ["index ", ReplacementField(k), " is out of range"])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelSyntaxError, KernelTypeError
from vkchi.frontend.values.references import Context
from vkchi.frontend.values.texts import Part, print_parts
from vkchi.ir.core import Value
from vkchi.reports.sites import FAILURE_WORDS, ReportSite, ValuePlaceholder
from vkchi.types import scalar_of, shape_of

if TYPE_CHECKING:
    from vkchi.frontend.context import Lowering

KINDS = {"line": "report_line", "overflow": "report_once"}  # the others are failures


class ReportBuilder:
    """The report sites of a kernel so far.

    `iteration` has the index names of the current parallel loop, each with its values.
    """

    __slots__ = ("iteration", "sites")

    def __init__(self) -> None:
        self.sites: list[ReportSite] = []
        self.iteration: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    def emit(self, cx: Context, kind: str, parts: Sequence[Part]) -> None:
        """Emit a report op here, and add its site. `kind` tells a line, a warning (`overflow`) or a
        failure.

        Raises KernelTypeError for a failure whose record exceeds FAILURE_WORDS.
        """
        values: list[Value] = []
        places: dict[Value, int] = {}

        def place(v: Value) -> int:
            if v not in places:
                places[v] = len(values)
                values.append(v)
            return places[v]

        iteration: tuple[tuple[str, tuple[int, ...]], ...] = ()
        if kind != "line":
            iteration = tuple([(k, tuple(map(place, vs))) for k, vs in self.iteration])
        texts = [
            p if isinstance(p, str) else ValuePlaceholder(place(p.value), p.spec)
            for p in merged(parts)
        ]
        types = tuple([(scalar_of(v.type).name, shape_of(v.type)) for v in values])
        site = ReportSite(kind, tuple(texts), types, cx.span, iteration)
        op = KINDS.get(kind, "report_failure")
        if op == "report_failure" and site.words > FAILURE_WORDS:
            raise cx.fail(
                "this message has too many values",
                kind=KernelTypeError,
                help="print what does not fit",
            )
        self.sites.append(site)
        cx.b.emit(op, cx.b.emit("thread_index"), *values, attr=len(self.sites) - 1)

    def emit_unless(self, cx: Context, ok: Value, kind: str, parts: Sequence[Part]) -> None:
        """Emit a report that the kernel makes where `ok`, a u1, is false."""
        with cx.b.region() as nothing:
            cx.b.emit("yield")
        with cx.b.region() as then:
            self.emit(cx, kind, parts)
            cx.b.emit("yield")
        cx.b.if_(ok, nothing, then)


def merged(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with adjacent strings joined, without empty strings."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return found


# --- print ---------------------------------------------------------------------------------------


def lower_print(cx: Lowering, *args: Any, **kwargs: Any) -> None:
    """Lower `print(*args, sep=" ", end="\\n")` to a report of kind `line`.

    Raises KernelSyntaxError for an unknown option, or a `sep` or `end` that is no constant string.
    """
    options = {"sep": " ", "end": "\n", "flush": False, **kwargs}
    unknown = sorted(options.keys() - {"sep", "end", "flush"})
    if unknown:
        raise cx.fail(f"`print` in a kernel has no option `{unknown[0]}`", kind=KernelSyntaxError)
    sep, end = _word(cx, "sep", options["sep"], " "), _word(cx, "end", options["end"], "\n")
    parts: list[Part] = []
    for k, x in enumerate(args):
        parts += [sep if k else "", *print_parts(cx, x, k)]
    cx.reports.emit(cx, "line", [*parts, end])


def _word(cx: Lowering, name: str, x: Any, default: str) -> str:
    if x is not None and not isinstance(x, str):
        raise cx.fail(f"`{name}` of `print` must be a compile-time constant string")
    return default if x is None else x
