"""Parser for the text form of IR (see `text`). It checks syntax and names, `verify` the rest.

So it accepts ill-typed IR, unknown ops, and uses before definitions. An op's span is its text up to
its regions.

    >>> parse_func("func @f(%a: i32) {\\n %b = neg %a : i32\\n yield\\n}").name
    'f'
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, TypeVar

from vkchi.errors import CompilationError
from vkchi.interrupts.local import local
from vkchi.ir.core import Func, Op, Param, Program, Region, Value
from vkchi.ir.literal import LITERAL, NAME, TYPE, attr_of, name_of, number_bits, type_named
from vkchi.span import Span
from vkchi.types import Scalar, Tensor, Type
from vkchi.types.core import Attributes

T = TypeVar("T")
_BLANK = re.compile(r"(?:[ \t\r]|;[^\n]*)*")
_BLANK_LINES = re.compile(r"(?:\s|;[^\n]*)*")
_KIND = re.compile(r"[A-Za-z_]\w*")
_COUNT = re.compile(r"\d+")
_ATTR = re.compile(r'(?:[^"\[\]\n]|"(?:[^"\\]|\\.)*")*')


def parse(text: str, file: str = "<text>") -> Program:
    """Parse all Funcs of a text into a Program named after the first.

    Raises CompilationError for a syntax error, an undefined or duplicate name, or a text without
    Funcs.
    """
    parser = Parser(text, file)
    funcs = []
    while not parser.at_end():
        funcs.append(parser.func())
    if not funcs:
        raise parser.error("there is no func here")
    return Program(funcs[0].name, tuple(funcs))


def parse_func(text: str, file: str = "<text>") -> Func:
    """Parse a text of one Func. Raises CompilationError for syntax errors and for several Funcs."""
    program = parse(text, file)
    if len(program.funcs) != 1:
        raise CompilationError(f"{file}: one func expected, not {len(program.funcs)}")
    return program.funcs[0]


class _Unknown(Value):
    """Forward reference: a name that is not defined yet. `Parser.func` replaces it by the value."""

    __slots__ = ("span",)

    def __init__(self, name: str, span: Span) -> None:
        self.name, self.span = name, span


class Parser:
    """Recursive-descent parser at position `at` of `text`.

    `values` maps the names that are defined in the current Func.
    """

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file, self.at = text, file, 0
        self.starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self.values: dict[str, Value] = {}
        self.incomplete: list[Op] = []

    # --- characters

    def span(self, begin: int, end: int) -> Span:
        """Return the source span of text[begin:end], at least one character. Precondition: it is on
        one line."""
        line = bisect_right(self.starts, begin)
        start = self.starts[line - 1]
        return Span(self.file, line, begin - start + 1, line, max(end, begin + 1) - start + 1)

    def error(self, sentence: str, begin: int | None = None) -> CompilationError:
        """Return, without raising it, an error that points at `begin`, or at the current position.

        It points at the last non-blank character if that comes before.
        """
        begin = self.at if begin is None else begin
        begin = max(0, min(begin, len(self.text.rstrip()) - 1))
        return CompilationError(sentence, self.span(begin, max(self.at, begin)))

    def blank(self, pattern: re.Pattern[str] = _BLANK) -> None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def at_end(self) -> bool:
        self.blank(_BLANK_LINES)
        return self.at == len(self.text)

    def has(self, mark: str) -> bool:
        """True if `mark` comes next, in which case it is consumed."""
        self.blank()
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def need(self, mark: str) -> None:
        """Consume `mark`. Raises CompilationError if it does not come next."""
        if not self.has(mark):
            raise self.error(f"`{mark}` expected")

    def read(self, pattern: re.Pattern[str], what: str, convert: Callable[[str], T]) -> T:
        """Consume a match of the pattern, after blanks, and return it converted.

        Raises CompilationError without a nonempty match, and for a ValueError of `convert`.
        """
        self.blank()
        begin, found = self.at, pattern.match(self.text, self.at)
        if found is None or not found[0]:
            raise self.error(f"{what} expected")
        self.at = found.end()
        try:
            return convert(found[0])
        except local(ValueError) as e:
            raise self.error(str(e), begin) from None

    def listed(self, item: Callable[[], T], end: str | None = None) -> list[T]:
        """Parse a comma-separated list of items. With `end`, which terminates the list, it may be
        empty."""
        if end is not None and self.has(end):
            return []
        items = [item()]
        while self.has(","):
            items.append(item())
        if end is not None:
            self.need(end)
        return items

    # --- names and values

    def type(self) -> Type:
        return self.read(TYPE, "a type", type_named)

    def new_name(self) -> tuple[str, int]:
        """Parse a name to be defined; return it with its position.

        Raises CompilationError if it is in use.
        """
        self.need("%")
        begin = self.at - 1
        name = self.read(NAME, "a name", name_of)
        if name in self.values:
            raise self.error(f"%{name} is defined twice", begin)
        return name, begin

    def define(self, name: str, v: Value) -> None:
        self.values[name] = v
        v.name = name

    def param(self) -> Param:
        name, _ = self.new_name()
        self.need(":")
        p = Param(self.type(), name, self.attributes())
        self.define(name, p)
        return p

    def attributes(self) -> Attributes:
        found: dict[str, Any] = {}
        while self.next_matches(_KIND):
            begin = self.at
            word = self.read(_KIND, "an attribute", str)
            if word not in _ATTRIBUTES or word in found:
                raise self.error(f"`{word}` is no attribute here", begin)
            found[word] = _ATTRIBUTES[word](self)
        return Attributes(**found)

    def next_matches(self, pattern: re.Pattern[str]) -> bool:
        self.blank()
        return pattern.match(self.text, self.at) is not None

    def use(self) -> Value:
        """Parse an operand; return the value of this name, or a forward reference."""
        self.need("%")
        begin = self.at - 1
        name = self.read(NAME, "a name", name_of)
        return self.values.get(name) or _Unknown(name, self.span(begin, self.at))

    # --- structure

    def func(self) -> Func:
        self.values, self.incomplete = {}, []
        begin = self.at
        self.need("func")
        self.need("@")
        name = self.read(NAME, "a name", name_of)
        self.need("(")
        params = tuple(self.listed(self.param, ")"))
        span = self.span(begin, self.at)
        self.need("{")
        body = self.region()
        for op in self.incomplete:
            op.args = tuple([self._known(v) for v in op.args])
        return Func(name, params, body, span)

    def _known(self, v: Value) -> Value:
        if not isinstance(v, _Unknown):
            return v
        if v.name not in self.values:
            raise CompilationError(f"%{v.name} is not defined", v.span)
        return self.values[v.name]

    def region(self) -> Region:
        self.blank(_BLANK_LINES)
        params = []
        if self.has("^"):
            self.need("(")
            params = self.listed(self.param, ")")
        ops: list[Op] = []
        self.blank(_BLANK_LINES)
        while not self.has("}"):
            if self.at == len(self.text):
                raise self.error("`}` expected")
            ops.append(self.op())
            self.blank(_BLANK_LINES)
        return Region(tuple(params), ops)

    def op(self) -> Op:
        """Parse one op, up to the end of its line or of its last region, and define its results."""
        begin = self.at
        results = self.results()
        kind = self.read(_KIND, "an op", str)
        literal = self.literal() if kind == "const" else None
        label = self.read(NAME, "a name", name_of) if self.has("@") else ""
        args = tuple(self.listed(self.use)) if self.next_is("%") else ()
        attr = self.attr()
        types = self.listed(self.type) if self.has(":") else []
        if len(types) != len(results):
            raise self.error(f"{len(results)} results, but {len(types)} types", begin)
        if literal is not None:
            attr = self.constant(literal, types)
        span = self.span(begin, self.at)
        regions = []
        while self.has("{"):
            regions.append(self.region())
        self.need_end()
        single = types[0] if len(types) == 1 and not regions else None
        op = Op(
            kind, args, attr, single, span, label, tuple(regions), () if single else tuple(types)
        )
        if any(isinstance(v, _Unknown) for v in args):
            self.incomplete.append(op)
        for name, v in zip(results, op.results, strict=True):
            self.define(name, v)
        return op

    def next_is(self, mark: str) -> bool:
        self.blank()
        return self.text.startswith(mark, self.at)

    def need_end(self) -> None:
        self.blank()
        if self.at < len(self.text) and self.text[self.at] not in "\n}":
            raise self.error("end of line expected")

    def results(self) -> list[str]:
        if not self.next_is("%"):
            return []
        names = self.listed(self.new_name)
        self.need("=")
        for k, (name, begin) in enumerate(names):
            if any(name == other for other, _ in names[:k]):
                raise self.error(f"%{name} is defined twice", begin)
        return [name for name, _ in names]

    def attr(self) -> Any:
        if not self.has("["):
            return None
        value = self.read(_ATTR, "an attribute", attr_of)
        self.need("]")
        return value

    def literal(self) -> tuple[int, list[str] | str]:
        """Parse the number or list of numbers of a `const`. Return (position, string or list of
        strings)."""
        self.blank()
        begin = self.at
        if self.has("["):
            return begin, self.listed(lambda: self.read(LITERAL, "a number", str), "]")
        return begin, self.read(LITERAL, "a number", str)

    def constant(self, literal: tuple[int, list[str] | str], types: list[Type]) -> Any:
        """Convert a literal to the attr of a `const` of the type `types[0]`.

        Raises CompilationError if it does not fit.
        """
        begin, text = literal
        t = types[0] if len(types) == 1 else None
        try:
            if isinstance(t, Tensor) and isinstance(text, list):
                return tuple(number_bits(word, t.elem) for word in text)
            if isinstance(t, Scalar) and isinstance(text, str):
                return number_bits(text, t)
        except local(ValueError) as e:
            raise self.error(str(e), begin) from None
        raise self.error("a constant is a number, or a list of numbers for a tensor type", begin)


# Parsers of an attribute's value, after its name.
_ATTRIBUTES: dict[str, Callable[[Parser], Any]] = {
    "like": lambda parser: parser.read(NAME, "a name", name_of),
    "ext64": lambda parser: True,
    "noalias": lambda parser: True,
    "noguard": lambda parser: True,
    "aligned": lambda parser: parser.read(_COUNT, "a number of bytes", int),
    "indirect": lambda parser: True,
}
