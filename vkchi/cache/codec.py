"""Serialization of compiler records as a JSON tree and byte strings. Decoding unpickles and
evaluates nothing.

The form of a value is an annotation string, as on record fields: `dict[str, tuple[Shader, ...]]`.
Forms are plain types, bytes, IR types, `tuple`, `frozenset`, `dict`, unions, and the names in
`RECORDS` and `ALIASES`. A record is written as the list of its fields, without its name, so the
reader must request the form that was written.

    >>> decode(encode(artifact, "Artifact"), "Artifact") == artifact
    True

`span` is a function that is applied to every source span, when encoding or decoding.
"""

from __future__ import annotations

import ast
import json
import struct
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from vkchi.interrupts.local import local
from vkchi.ir.literal import type_named
from vkchi.reports.sites import FloatStep, ReportSite, ValuePlaceholder
from vkchi.span import Span
from vkchi.target.artifact import Artifact, Dispatch, DispatchSize, Interface, IrText, MemoryFill
from vkchi.target.remarks import Caution, LoopCaution
from vkchi.target.shader import COUNT_OPS, ArgumentSlot, Check, Grid, GridAxis, Shader
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Ptr, Scalar, Tensor

CLASSES = (
    Artifact, Caution, Check, Dispatch, DispatchSize, FloatStep, MemoryFill, Grid, GridAxis,
    Interface, IrText, LoopCaution, Shader, ValuePlaceholder, ReportSite, ArgumentSlot, Span,
)  # fmt: skip
RECORDS: dict[str, Any] = {cls.__name__: cls for cls in CLASSES}
ALIASES = {
    "Shape": "tuple[int, ...]",
    "Names": "frozenset[str]",
    "Range": "tuple[int, int]",
    "Box": "tuple[Range | None, ...]",
    "Spans": "dict[str, Span | None]",
}
PLAIN: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str, "None": type(None)}
TYPES: dict[str, tuple[type, ...]] = {
    "Array": (Array,), "Scalar": (Scalar,), "Tensor": (Tensor,),
    "Type": (Scalar, Tensor, Array, Ptr),
}  # fmt: skip
# Types of the fields after the first word: of a grid count's leaves, and of bindings.
LEAVES: dict[str, tuple[tuple[type, ...], ...]] = {
    "const": ((int,),), "arg": ((str,), (str, int)), "item": ((str, int),), "dim": ((str, int),),
    "word": ((str, int),),
}  # fmt: skip
BINDINGS: dict[str, tuple[tuple[type, ...], ...]] = {
    "arg": ((str,),), "grad": ((str,),), "field": ((int, str),), "return": ((int,),), "seed": ((),),
}  # fmt: skip
HEAD = struct.Struct("<I")
Move = Callable[[Span], Span]


def add_records(*classes: Any) -> None:
    RECORDS.update((cls.__name__, cls) for cls in classes)


class Malformed(ValueError):
    """Error: data that `encode` cannot have written."""


class Through(NamedTuple):
    """Context of a conversion: byte strings, and the function applied to spans."""

    blobs: list[bytes]
    span: Move | None = None


Step = Callable[[Any, Through], Any]  # value to tree, or tree to value


def encode(value: Any, form: str, *, span: Move | None = None) -> bytes:
    """Encode a value of this form. Raises TypeError for a value of another form, where that is
    detected.

    Raises Malformed for a `Check` that is unsafe to evaluate, and the errors of `span`.
    """
    blobs: list[bytes] = []
    tree = json.dumps(to_tree(value, form, blobs, span), separators=(",", ":")).encode()
    sizes = json.dumps([len(blob) for blob in blobs]).encode()
    return b"".join([HEAD.pack(len(tree)), HEAD.pack(len(sizes)), tree, sizes, *blobs])


def decode(data: bytes, form: str, *, span: Move | None = None) -> Any:
    """Decode a value of this form. Raises Malformed."""
    try:
        (size,), (count,) = HEAD.unpack_from(data), HEAD.unpack_from(data, HEAD.size)
        at = 2 * HEAD.size
        tree, sizes = json.loads(data[at : at + size]), json.loads(data[at + size :][:count])
        at += size + count
        blobs = []
        for length in sizes:
            blobs.append(data[at : at + length])
            at += length
        if at != len(data) or any(length < 0 for length in sizes):
            raise Malformed(f"{len(data)} bytes, and not {at}")
        return from_tree(tree, form, blobs, span)
    except local(ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError) as e:
        raise Malformed(f"{type(e).__name__}: {e}") from None


def to_tree(value: Any, form: str, blobs: list[bytes], span: Move | None = None) -> Any:
    """Convert a value to JSON types; append its byte strings to `blobs`. Raises as `encode`."""
    return writer(form)(value, Through(blobs, span))


def from_tree(tree: Any, form: str, blobs: list[bytes], span: Move | None = None) -> Any:
    """Convert a JSON tree to a value of this form; its byte strings are indices into `blobs`.
    Raises ValueError, TypeError, KeyError, IndexError."""
    return reader(form)(tree, Through(blobs, span))


# --- annotations ---------------------------------------------------------------------------------


def split_annotation(text: str, mark: str) -> list[str]:
    """Split an annotation at each `mark` outside of brackets."""
    if "[" not in text:
        return [part.strip() for part in text.split(mark)]
    parts, depth = [""], 0
    for c in text:
        depth += (c == "[") - (c == "]")
        if c == mark and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def parse_annotation(form: str) -> tuple[str, list[str]]:
    """Parse an annotation; return its outermost word and its arguments. The word is `types` if all
    alternatives name classes of IR types, `|` for another union."""
    form = ALIASES.get(form, form)
    options = split_annotation(form, "|")
    if TYPES.keys() >= set(options):
        return "types", options
    if len(options) > 1:
        return "|", options
    word, bracket, inner = form.partition("[")
    return word, split_annotation(inner[:-1], ",") if bracket else []


def form_error(form: str, found: Any) -> TypeError:
    return TypeError(f"{form} expected, and not {found!r:.60}")


def plain_step(form: str, kind: type) -> Step:
    """A step that passes values of exactly the type `kind`; it raises TypeError for others."""

    def take(value: Any, through: Through) -> Any:
        if type(value) is not kind:
            raise form_error(form, value)
        return value

    return take


def any_step(steps: list[Step], form: str) -> Step:
    """Return a step that returns the result of the first of `steps` without a TypeError. It raises
    TypeError if all of them do."""

    def take(value: Any, through: Through) -> Any:
        for step in steps:
            try:
                return step(value, through)
            except TypeError:
                continue
        raise form_error(form, value)

    return take


def union(options: list[str], make: Callable[[str], Step], form: str) -> Step:
    some = [make(option) for option in options if option != "None"]
    step = some[0] if len(some) == 1 else any_step(some, form)
    if len(some) == len(options):
        return step
    return lambda value, through: None if value is None else step(value, through)


# --- reading -------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def reader(form: str) -> Step:
    """Return the decoder of a form, memoized. Raises TypeError for an unknown form. The decoder
    raises ValueError, TypeError, IndexError or KeyError for a malformed tree."""
    word, inner = parse_annotation(form)
    if word in PLAIN:
        return plain_step(form, PLAIN[word])
    if word == "types":
        return partial(read_type, kinds_of(inner))
    if word in RECORDS:
        return read_record(word)
    if word == "|":
        return union(inner, reader, form)
    if word == "bytes":
        return read_bytes
    if word == "Count":
        return read_count
    if word == "Binding":
        return partial(read_row, BINDINGS)
    if word == "dict":
        return read_dict(reader(inner[0]), reader(inner[1]))
    if word in ("tuple", "frozenset") and (word == "frozenset" or inner[1:] == ["..."]):
        return read_several(inner[0], frozenset if word == "frozenset" else tuple)
    if word == "tuple":
        return read_fixed([reader(part) for part in inner], form)
    raise TypeError(f"`{form}` has no form in the cache")


def kinds_of(names: list[str]) -> tuple[type, ...]:
    return tuple([kind for name in names for kind in TYPES[name]])


def read_type(kinds: tuple[type, ...], tree: Any, through: Through) -> Any:
    found = type_named(tree) if type(tree) is str else None
    if not isinstance(found, kinds):
        raise form_error(kinds[0].__name__, tree)
    return found


def read_bytes(tree: Any, through: Through) -> bytes:
    if type(tree) is not int or tree < 0:
        raise form_error("bytes", tree)
    return through.blobs[tree]


def read_several(form: str, make: Callable[[list[Any]], Any]) -> Step:
    kinds, read = {PLAIN.get(form)}, reader(form)

    def take(tree: Any, through: Through) -> Any:
        if type(tree) is not list:
            raise form_error("a list", tree)
        if kinds.issuperset(map(type, tree)):  # fast path: most elements are plain
            return make(tree)
        return make([read(v, through) for v in tree])

    return take


def read_fixed(reads: list[Step], form: str) -> Step:
    def take(tree: Any, through: Through) -> Any:
        if type(tree) is not list or len(tree) != len(reads):
            raise form_error(form, tree)
        return tuple([read(v, through) for read, v in zip(reads, tree)])

    return take


def read_dict(key: Step, value: Step) -> Step:
    def take(tree: Any, through: Through) -> Any:
        if type(tree) is not list:
            raise form_error("a list", tree)
        return {key(k, through): value(v, through) for k, v in tree}

    return take


def read_record(name: str) -> Step:
    made, forms = RECORDS[name], list(RECORDS[name].__annotations__.values())
    kinds = [PLAIN.get(form) for form in forms]
    check = CHECKS.get(name)
    others: list[tuple[int, Step]] = []

    def take(tree: Any, through: Through) -> Any:
        if type(tree) is not list or len(tree) != len(forms):
            raise form_error(name, tree)
        if not others and None in kinds:  # lazy: a Span contains a Span
            others.extend((k, reader(f)) for k, f in enumerate(forms) if kinds[k] is None)
        fields = list(tree)
        for k, read in others:
            fields[k] = read(tree[k], through)
        for kind, field in zip(kinds, fields):
            if kind is not None and type(field) is not kind:
                raise form_error(name, tree)
        found = made(*fields)
        if check is not None:
            check(found)
        return through.span(found) if made is Span and through.span is not None else found

    return take


def check_check(check: Check) -> None:
    """Raise Malformed unless the check's expression and message are safe to evaluate."""
    if not is_plain_test(check.test) or not is_plain_sentence(check.sentence):
        raise Malformed(f"`{check.test}` is no check")


CHECKS: dict[str, Callable[[Any], None]] = {"Check": check_check}


def read_count(tree: Any, through: Through) -> Any:
    """Decode a grid count (`target.shader`)."""
    if type(tree) is not list or not tree:
        raise form_error("a count", tree)
    kind, rest = tree[0], tree[1:]
    if kind in COUNT_OPS:
        if len(rest) != COUNT_OPS[kind].count("{}"):
            raise form_error("a count", tree)
        return (kind, *[read_count(part, through) for part in rest])
    if kind == "wrap" and len(rest) == 2:
        if read_type((Scalar,), rest[0], through).kind not in "iu":
            raise form_error("an integer type", rest[0])
        return (kind, rest[0], read_count(rest[1], through))
    return read_row(LEAVES, tree, through)


def read_row(kinds: dict[str, tuple[tuple[type, ...], ...]], tree: Any, through: Through) -> Any:
    """Convert a list to a tuple. `kinds` gives the allowed types of the other items by the first
    item. Raises TypeError, KeyError."""
    if type(tree) is not list or tuple(map(type, tree[1:])) not in kinds[tree[0]]:
        raise form_error(" or ".join(kinds), tree)
    return tuple(tree)


# --- writing -------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def writer(form: str) -> Step:
    """Return the encoder of a form, memoized. Raises TypeError for an unknown form."""
    word, inner = parse_annotation(form)
    if word in PLAIN:
        return plain_step(form, PLAIN[word])
    if word == "types":
        return partial(write_type, kinds_of(inner))
    if word in RECORDS:
        return write_record(word)
    if word == "|":
        return union(inner, writer, form)
    if word == "bytes":
        return write_bytes
    if word in ("Count", "Binding"):
        return write_nested
    if word == "dict":
        return write_dict(writer(inner[0]), writer(inner[1]))
    if word == "frozenset":
        return write_several(writer(inner[0]), frozenset)
    if word == "tuple" and inner[1:] == ["..."]:
        return write_several(writer(inner[0]), tuple)
    if word == "tuple":
        return write_fixed([writer(part) for part in inner], form)
    raise TypeError(f"`{form}` has no form in the cache")


def write_type(kinds: tuple[type, ...], value: Any, through: Through) -> str:
    if not isinstance(value, kinds):
        raise form_error(kinds[0].__name__, value)
    return repr(value)


def write_bytes(value: Any, through: Through) -> int:
    if type(value) is not bytes:
        raise form_error("bytes", value)
    through.blobs.append(value)
    return len(through.blobs) - 1


def write_several(write: Step, kind: Any) -> Step:
    def put(value: Any, through: Through) -> Any:
        if type(value) is not kind:
            raise form_error(kind.__name__, value)
        ordered = sorted(value) if kind is frozenset else value
        return [write(v, through) for v in ordered]

    return put


def write_fixed(writes: list[Step], form: str) -> Step:
    def put(value: Any, through: Through) -> Any:
        if type(value) is not tuple or len(value) != len(writes):
            raise form_error(form, value)
        return [write(v, through) for write, v in zip(writes, value)]

    return put


def write_dict(key: Step, value: Step) -> Step:
    def put(table: Any, through: Through) -> Any:
        if not isinstance(table, dict):
            raise form_error("dict", table)
        return [[key(k, through), value(v, through)] for k, v in table.items()]

    return put


def write_record(name: str) -> Step:
    made, forms = RECORDS[name], list(RECORDS[name].__annotations__.values())
    check = CHECKS.get(name)

    def put(value: Any, through: Through) -> Any:
        if type(value) is not made:
            raise form_error(name, value)
        if made is Span and through.span is not None:
            value = through.span(value)
        if check is not None:
            check(value)
        return [writer(form)(field, through) for form, field in zip(forms, value)]

    return put


def write_nested(value: Any, through: Through) -> Any:
    return [write_nested(v, through) if isinstance(v, tuple) else v for v in value]


# --- checks: a whitelist of expressions that may be evaluated ------------------------------------


# AST nodes allowed in a check: comparisons of `n` and `w` with integers.
TEST_NODES = (
    ast.Expression, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name,
    ast.Load, ast.Store, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.Call,
    ast.GeneratorExp, ast.comprehension, ast.Tuple,
)  # fmt: skip


def is_plain_test(text: str) -> bool:
    """True if the expression has only comparisons, logic and arithmetic of integers, `n` and `w`.

    Also allowed are tuples, generator expressions and calls of `all`. False for powers, left
    shifts, 1000 or more characters, and syntax errors.
    """
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except local(SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return len(text) < 1000 and all(
        isinstance(n, TEST_NODES)
        and (not isinstance(n, ast.Name) or n.id in ("n", "w", "all"))
        and (not isinstance(n, ast.Constant) or isinstance(n.value, int))
        and (not isinstance(n, ast.Pow | ast.LShift))
        and (not isinstance(n, ast.Call) or getattr(n.func, "id", "") == "all")
        for n in nodes
    )


def is_plain_sentence(text: str) -> bool:
    """True if the format string has no braces except those of `{n}`."""
    rest = text.replace("{n}", "")
    return "{" not in rest and "}" not in rest
