"""IR printer. `parse` reads its output, and printing that again gives the same text.

    func @saxpy(%a: f32, %x: array<f32[?]>) {
      %n = shape %x [0] : i32
      %c0 = const 0 : i32
      parallel %c0, %n [128] {
        ^(%i: i32)
        %p = elem %x, %i : ptr<f32 global>
        %v = load %p : f32
        store %p, %v
        yield
      }
      yield
    }

All ops have one form: `results = kind args [attr] : result types { regions }`. A `const` has its
attr, a number or list of numbers, in place of arguments. A `parallel` may have a name, `@name`,
before its arguments. `;` starts a comment. Spans are not
printed.

Names are the values' hints, or by default the kind. A `const` without a hint is named after its
value if it is a scalar of a short text. A counter per name makes names unique, in order of
appearance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vkchi.ir.core import Func, Op, Param, Program, Region, Result, Value, walk
from vkchi.ir.literal import attr_text, constant_text, name_text
from vkchi.span import Span
from vkchi.target.artifact import IrText
from vkchi.types import Scalar

if TYPE_CHECKING:
    from vkchi.ir.parse import parse, parse_func

__all__ = [
    "func_from_text",
    "ir_text",
    "parse",
    "parse_func",
    "print_func",
    "print_op",
    "print_program",
]

_INDENT = "  "
_LONG_CONSTANT = 8  # characters; longer constants are not named after their value


def __getattr__(name: str) -> Any:
    if name not in ("parse", "parse_func"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vkchi.ir import parse

    return getattr(parse, name)


def print_program(program: Program) -> str:
    """Return the text of every Func, in launch order, separated by an empty line."""
    return "\n".join(print_func(fn) for fn in program.funcs)


def print_func(fn: Func) -> str:
    """Return the text of one Func, ending in a newline."""
    p = Printer(fn)
    params = ", ".join(map(p.param, fn.params))
    p.lines.append(f"func @{name_text(fn.name)}({params}) {{")
    p.region(fn.body, _INDENT)
    return "\n".join([*p.lines, "}\n"])


def ir_text(fn: Func) -> IrText:
    """Serialize a Func: its text, the spans of its ops, the name hints of its values."""
    numbers: dict[Span | None, int] = {}
    ops = list(walk(fn.body))
    places = [numbers.setdefault(op.span, len(numbers)) for op in ops]
    places.append(numbers.setdefault(fn.span, len(numbers)))
    hints = tuple(v.name for v in hinted_values(fn))
    return IrText(print_func(fn), tuple(numbers), tuple(places), hints)


def func_from_text(text: IrText) -> Func:
    """Deserialize a Func: the inverse of `ir_text`. A malformed text raises CompilationError."""
    from vkchi.ir.parse import parse_func

    fn = parse_func(text.text)
    *places, own = text.places
    for op, place in zip(walk(fn.body), places, strict=True):
        op.span = text.spans[place]
    for v, name in zip(hinted_values(fn), text.hints, strict=True):
        v.name = name
    return Func(fn.name, fn.params, fn.body, text.spans[own])


def hinted_values(fn: Func) -> Iterator[Value]:
    """Yield, in text order, the results of a Func's ops and the parameters of their regions."""
    for op in walk(fn.body):
        yield from op.results
        for region in op.regions:
            yield from region.params


def print_op(op: Op, fn: Func | None = None) -> str:
    """Return the text of one op without its regions.

    Names of values are those in the text of `fn`, if given, else those of the op alone.
    """
    p = Printer(fn)
    if fn is not None:
        p.region(fn.body, "")
    return p.head(op)


class Printer:
    """Collects the `lines` of a text. A value gets its name at its first appearance."""

    def __init__(self, fn: Func | None = None) -> None:
        self.lines: list[str] = []
        params = fn.params if fn is not None else ()
        self.names: dict[Value, str] = {p: p.name for p in params}
        self.taken = {p.name for p in params}
        self.counts: dict[str, int] = {}

    def name(self, v: Value) -> str:
        name = self.names.get(v)
        if name is None:
            name = self.names[v] = self._unique(v.name or _default_name(v))
            self.taken.add(name)
        return f"%{name_text(name)}"

    def _unique(self, hint: str) -> str:
        if hint not in self.taken:
            return hint
        base, _, number = hint.rpartition(".")
        stem = base if base and number.isdigit() else hint
        k = self.counts.get(stem, 0) + 1
        while f"{stem}.{k}" in self.taken:
            k += 1
        self.counts[stem] = k
        return f"{stem}.{k}"

    def param(self, p: Param) -> str:
        return " ".join([f"{self.name(p)}: {p.type}", *p.attributes.words()])

    def head(self, op: Op) -> str:
        results = ", ".join(map(self.name, op.results))
        words = [f"{results} =", op.kind] if results else [op.kind]
        if op.kind == "parallel" and op.name:
            words.append(f"@{name_text(op.name)}")
        if op.kind == "const":
            words.append(constant_text(op.attr, op.type))
        if op.args:
            words.append(", ".join(map(self.name, op.args)))
        if op.kind != "const" and op.attr is not None:
            words.append(f"[{attr_text(op.attr)}]")
        if results:
            words.append(": " + ", ".join(str(v.type) for v in op.results))
        return " ".join(words)

    def region(self, region: Region, indent: str) -> None:
        if region.params:
            self.lines.append(f"{indent}^({', '.join(map(self.param, region.params))})")
        for op in region.ops:
            self.op(op, indent)

    def op(self, op: Op, indent: str) -> None:
        line = indent + self.head(op)
        for region in op.regions:
            self.lines.append(line + " {")
            self.region(region, indent + _INDENT)
            line = indent + "}"
        self.lines.append(line)


def _default_name(v: Value) -> str:
    if isinstance(v, Param):
        return "arg"
    op = v.op if isinstance(v, Result) else v
    if not isinstance(op, Op):
        return "value"
    if op.kind != "const" or not isinstance(op.type, Scalar):
        return op.name or op.kind
    text = constant_text(op.attr, op.type)
    if len(text) > _LONG_CONSTANT:
        return "const"
    return text if op.type.kind == "b" else "c" + text.replace(".", "_").replace("-", "m")
