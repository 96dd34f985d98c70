"""Line-based format of a saved module, for programs without a JSON parser: `module.txt`.

docs/aot.md describes it; `aot/c/vkchi.h` reads it. Words are separated by one space. Loop counts
are in postfix notation: numbers, `arg:NAME`, `item:NAME:K`, `dim:NAME:AXIS`, `wrap:TYPE`, and the
names of `target.shader.COUNT_OPS`.

    >>> count_words(("max", ("sub", ("arg", "n"), ("const", 1)), ("const", 0)))
    ['arg:n', '1', 'sub', '0', 'max']
"""

from __future__ import annotations

import ast
import math
import zlib
from collections.abc import Iterator
from typing import Any

from vkchi.aot.json_format import FORMAT, Saved, SavedField, SavedGraph, SavedKernel, Tree, type_of
from vkchi.errors import InternalError
from vkchi.reports.sites import LINE_WORDS, LINES_AT
from vkchi.target.artifact import Dispatch
from vkchi.target.shader import REPORTS, ArgumentSlot, Check, Count
from vkchi.types import Array, Scalar, Tensor, cell_of, shape_of
from vkchi.types.layout import shares_words

NAME = "module.txt"
COMPARES: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip


def write_table(saved: Saved, files: dict[str, bytes]) -> bytes:
    """Return the table of a module whose shaders are in these files."""
    names = {data: name for name, data in files.items() if name.endswith(".spv")}
    lines = [f"vkchi-module {FORMAT}", *(f"block {size}" for size in saved.blocks)]
    numbers = {name: k for k, name in enumerate(saved.fields)}
    lines += [field_line(name, f) for name, f in saved.fields.items()]
    for name, kernel in saved.kernels.items():
        lines += kernel_lines(name, kernel, numbers, names)
    for name, graph in saved.graphs.items():
        lines += graph_lines(name, graph)
    text = "".join(line + "\n" for line in lines).encode()
    return text + f"crc {zlib.crc32(text)}\n".encode()


def field_line(name: str, f: SavedField) -> str:
    """Format a field. Words: name, stored scalar type, components, 1 if in C order, block, start in
    bytes, axes, extents."""
    t: Array = type_of(f.type)
    assert t.shape is not None
    components = math.prod(shape_of(t.elem))
    is_dense = Array.of(t.elem, t.ndim, t.shape, stored=t.stored).layout in (t.layout, None) and (
        t.layout is None or t.layout.size == math.prod(t.shape) * components
    )
    is_dense = is_dense and not shares_words(t.layout)
    words = [name, t.stored, components, int(is_dense), f.block, f.start_bytes, t.ndim, *t.shape]
    return f"field {join_words(words)}"


def kernel_lines(
    name: str, kernel: SavedKernel, fields: dict[str, int], files: dict[bytes, str]
) -> Iterator[str]:
    """Format a kernel: parameters, bound arrays, temporary memory, checks, dispatches."""
    artifact, interface = kernel.artifact, kernel.interface
    yield f"kernel {name}"
    for tree in kernel.parameters:
        yield from parameter_lines(tree)
    for array, binding in interface.bindings.items():
        if binding[0] == "field":
            yield f"bound {array} {fields[kernel.fields[array]]}"
        elif binding[0] == "return":
            t = artifact.arrays[array]
            yield f"return {array} {cell_of(t.elem).stored} {math.prod(shape_of(t.elem))}"
        elif binding[0] == "grad":
            yield f"gradient {array} {binding[1]}"
    for array, t in artifact.temps.items():
        yield f"memory {array} {array_bytes(t)}"
    if artifact.sites_among(interface.sites):
        yield f"memory {REPORTS} {(LINES_AT + LINE_WORDS) * 4}"
    for check in interface.checks:
        yield join_words(["check", *count_words(check.value), ";", *test_words(check.test)])
        yield f"says {check.sentence.replace('{n}', 'so many')}{place_of(check)}"
    for dispatch in artifact.dispatches:
        yield from dispatch_lines(dispatch, files)


def array_bytes(t: Array) -> int:
    return (math.prod(t.shape or ()) + 1) * t.scalars_per_element * t.stored.size_bytes


def place_of(check: Check) -> str:
    return "" if check.span is None else f" ({check.span.place})"


def parameter_lines(tree: Tree) -> Iterator[str]:
    """Format a parameter or its members: kind, name, scalar, components, axes."""
    kind, name = tree["kind"], tree["name"]
    if kind in ("array", "texture"):
        t = type_of(tree["type"])
        yield f"array {name} {t.stored} {math.prod(shape_of(t.elem))} {t.ndim}"
    elif kind == "pack":
        for part in tree["members"].values():
            yield from parameter_lines(part)
    elif kind == "structs":
        for part in tree["parts"]:
            yield from parameter_lines(part)
    else:
        yield from value_lines(name, type_of(tree["type"]))


def value_lines(name: str, t: Any) -> Iterator[str]:
    if isinstance(t, Scalar):
        yield f"value {name} {t} 1"
    elif isinstance(t, Tensor):
        yield f"value {name} {t.elem} {t.size}"
    else:
        for member, m in t.members.items():
            yield from value_lines(f"{name}.{member}", m)


def dispatch_lines(dispatch: Dispatch, files: dict[bytes, str]) -> Iterator[str]:
    """Format a dispatch: shader file, size, checksum, argument bytes and their transport, axes,
    slots."""
    shader = dispatch.shader
    words = shader.words
    way = "buffer" if shader.indirect else "push"
    facts = [files[words], len(words), zlib.crc32(words), shader.size_bytes, way]
    yield f"dispatch {join_words(facts)}"
    for axis in shader.grid.axes:
        yield join_words(["axis", axis.block, *count_words(axis.length)])
    for slot in shader.slots:
        yield f"slot {slot.kind} {slot.param or '-'} {slot.axis} {slot_type(slot)} {slot.offset}"


def slot_type(slot: ArgumentSlot) -> str:
    if slot.kind in ("ptr", "trash"):
        return "u64"
    narrow = {"u8": "u32", "u16": "u32", "u1": "u32"}  # launches write them as u32
    return narrow.get(slot.dtype, slot.dtype or "i32")


def graph_lines(name: str, graph: SavedGraph) -> Iterator[str]:
    yield f"graph {name}"
    for kernel, entries in graph.nodes:
        yield f"node {kernel}"
        for kind, value in entries:
            yield (
                f"given {value}" if kind == "arg" else join_words(["constant", *numbers_in(value)])
            )


def numbers_in(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from numbers_in(part)
    else:
        yield int(value) if isinstance(value, bool) else value


# --- counts and checks ----------------------------------------------------------------------------


def count_words(count: Count) -> list[str]:
    """Return a count in postfix notation."""
    kind, *rest = count
    if kind == "const":
        return [str(int(rest[0]))]
    if kind in ("arg", "item", "dim"):
        return [":".join(map(str, (kind, *rest)))]
    if kind == "wrap":
        return [*count_words(rest[1]), f"wrap:{rest[0]}"]
    return [*(word for part in rest for word in count_words(part)), kind]


def test_words(text: str) -> list[str]:
    """Return a check's expression in postfix notation. Words: n (the value as an unbounded
    integer), w (the value), numbers, comparisons, and, or."""
    return _test(ast.parse(text, mode="eval").body, {"n": "n", "w": "w"})


def _test(node: ast.expr, names: dict[str, str]) -> list[str]:
    match node:
        case ast.Name():
            return [names[node.id]]
        case ast.Constant() | ast.UnaryOp():
            return [str(int(ast.literal_eval(node)))]
        case ast.BoolOp():
            word = "and" if isinstance(node.op, ast.And) else "or"
            parts = [_test(v, names) for v in node.values]
            return [*parts[0], *(w for part in parts[1:] for w in (*part, word))]
        case ast.Compare():
            return _comparisons(node, names)
        case ast.Call(args=[ast.GeneratorExp() as each]):  # all(TEST for n in (n, w))
            both = [_test(each.elt, {**names, "n": name}) for name in ("n", "w")]
            return [*both[0], *both[1], "and"]
    raise InternalError(f"checks have no {ast.unparse(node)}")


def _comparisons(node: ast.Compare, names: dict[str, str]) -> list[str]:
    """Expand a chained comparison: `a <= n <= b` is two comparisons joined by `and`."""
    sides = [node.left, *node.comparators]
    words: list[str] = []
    for k, op in enumerate(node.ops):
        words += [*_test(sides[k], names), *_test(sides[k + 1], names), COMPARES[type(op)]]
        words += ["and"] if k else []
    return words


def join_words(words: Any) -> str:
    return " ".join(map(str, words))
