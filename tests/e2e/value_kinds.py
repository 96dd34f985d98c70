"""Kinds of compile-time values and their operations in kernels: a small program per pair.

`answer` lowers the program of a pair, `table` the programs of all pairs.

    answer(KINDS["a string"], OPERATIONS["len(x)"], surroundings())     # ("3", "")
"""

from __future__ import annotations

import collections
import enum
import linecache
import math
import re
import zlib
from typing import Any, NamedTuple

import numpy as np

import vkchi as ti
from vkchi.errors import CompilationError, VkchiError
from vkchi.frontend.calls.tables import CALLS, CallHandler
from vkchi.frontend.lowering import lower_kernel
from vkchi.frontend.values.kinds import is_static
from vkchi.ir.core import Value
from vkchi.ir.verify import verify
from vkchi.runtime import current_runtime
from vkchi.signature import read_parameters
from vkchi.signature.signer import Signer


class Kind(NamedTuple):
    """An expression of the kind, `x`.

    `before` are statements in front of it, `params` the kernel's parameters beside n and c, which
    are i32.
    """

    x: str
    before: str = ""
    params: str = ""


KINDS = {
    "a kernel scalar": Kind("n"),
    "a kernel vector": Kind("v", "v = ti.Vector([n, 2, 3])"),
    "a kernel matrix": Kind("m", "m = ti.Matrix([[n, 2], [3, 4]])"),
    "an element of a field": Kind("field[n]"),
    "a component of a variable": Kind("v.x", "v = ti.Vector([n, 2, 3])"),
    "a list of a dynamic block": Kind("listed[n]"),
    "an entry of a builder": Kind("b[n, n]", "", "b: ti.types.sparse_matrix_builder()"),
    "an array argument": Kind("a", "", "a: ti.types.ndarray(ti.f32, 1)"),
    "a captured field": Kind("field"),
    "a field of structs": Kind("structs"),
    "a captured ndarray": Kind("nd"),
    "a captured texture": Kind("texture"),
    "a texture argument": Kind("t", "", "t: ti.types.texture(num_dimensions=1)"),
    "a matrix builder": Kind("b", "", "b: ti.types.sparse_matrix_builder()"),
    "a block of a field tree": Kind("block"),
    "a kernel struct": Kind("s", "s = Pair(n, 2.0)"),
    "an object made in the kernel": Kind("o", "o = Made(n)"),
    "a captured struct": Kind("struct"),
    "a captured vector": Kind("vector"),
    "a number": Kind("(3)"),
    "a numpy scalar of f64": Kind("np.float64(3.0)"),
    "a string": Kind('"abc"'),
    "a string with kernel values": Kind('f"{n}"'),
    "a list of kernel values": Kind("[n, 2, 3]"),
    "a dict of kernel values": Kind('{"p": n, "q": 2}'),
    "a named tuple": Kind("named"),
    "a range of Python ints": Kind("range(1, 4)"),
    "a range of kernel values": Kind("range(1, n)"),
    "a loop space": Kind("ti.ndrange(2, n)"),
    "grouped indices": Kind("ti.grouped(field)"),
    "a type": Kind("ti.f32"),
    "a function of vkchi": Kind("ti.sin"),
    "a function of the user": Kind("double"),
    "a class": Kind("Made"),
    "a module": Kind("math"),
    "None": Kind("None"),
    "a member of an enum": Kind("Colour.RED"),
    "a numpy array": Kind("array"),
    "an object of Python": Kind("plain"),
}

OPERATIONS = {
    "x.shape": "probe({x}.shape)",
    "x.ndim": "probe({x}.ndim)",
    "x[0]": "probe({x}[0])",
    "x[n]": "probe({x}[n])",
    "x + 1": "probe({x} + 1)",
    "x + [n, 2, 3]": "probe({x} + [n, 2, 3])",
    "2.5 * x": "probe(2.5 * {x})",
    "-x": "probe(-{x})",
    "x == x": "x = {x}; probe(x == x)",
    "x < 2": "probe({x} < 2)",
    "if x": "if {x}: probe(7)",
    "not x": "probe(not {x})",
    "3 in x": "probe(3 in {x})",
    "len(x)": "probe(len({x}))",
    "for": "for k in {x}: probe(k)",
    "ti.static": "for k in ti.static({x}): probe(k)",
    "[k for k in x]": "probe([k for k in {x}])",
    "p, q, r = x": "p, q, r = {x}; probe([p, q, r])",
    "f(*x)": "probe(*{x})",
    "sum(x)": "probe(sum({x}))",
    "max(x)": "probe(max({x}))",
    "list(x)": "probe(list({x}))",
    "enumerate": "probe([k for k in enumerate({x})])",
    "reversed": "probe([k for k in reversed({x})])",
    "zip": "probe([k for k in zip({x}, [5, 6, 7])])",
    "float(x)": "probe(float({x}))",
    "print(x)": "print({x}); probe(0)",
    '"{}".format(x) == "3"': 'probe("{{}}".format({x}) == "3")',
    "x.sum()": "probe({x}.sum())",
    "x(n)": "probe({x}(n))",
    "y = x; y = x": "y = {x}; y = {x}; probe(y)",
    "y = x; y += 1": "y = {x}; y += 1; probe(y)",
    "x if c else x": "probe({x} if c > 0 else {x})",
}


class Colour(enum.Enum):
    RED = 3


class Made:
    def __init__(self, x: Any) -> None:
        self.x = x


class Plain:
    """A class of Python's."""


def probe(*xs: Any) -> None:
    """Note an argument."""


def double(x: Any) -> Any:
    return x * 2


NAMES = [
    "field", "listed", "block", "structs", "nd", "texture", "struct", "vector", "named", "array",
    "plain",
]  # fmt: skip


def surroundings() -> dict[str, Any]:
    """Names that the programs use."""
    listed = ti.field(ti.i32)
    block = ti.root.dense(ti.i, 4)
    block.dynamic(ti.j, 8).place(listed)
    pair = ti.types.struct(a=ti.i32, b=ti.f32)
    given = {
        "field": ti.field(ti.f32, 4),
        "listed": listed,
        "block": block,
        "structs": pair.field(4),
        "nd": ti.ndarray(ti.f32, 4),
        "texture": ti.Texture(ti.Format.r32f, (4,)),
        "struct": ti.Struct(a=1, b=2.5),
        "vector": ti.Vector([1, 2, 3]),
        "named": collections.namedtuple("Named", "p q r")(1, 2, 3),
        "array": np.array([1, 2, 3]),
        "plain": Plain(),
        "Pair": pair,
    }
    return {
        **given, "ti": ti, "np": np, "math": math, "probe": probe, "double": double, "Made": Made,
        "Colour": Colour,
    }  # fmt: skip


def said(x: Any) -> str:
    """Text of a compile-time value for a cell of the table; of a kernel value its type."""
    if isinstance(x, Value):
        return str(x.type)
    if isinstance(x, list | tuple) and type(x) in (list, tuple):
        inner = " ".join(map(said, x))
        return f"[{inner}]" if isinstance(x, list) else f"({inner})"
    if hasattr(x, "keys") and not is_static(x):
        return "{" + " ".join(f"{k}:{said(x[k])}" for k in x.keys()) + "}"  # noqa: SIM118
    if isinstance(x, bool | int | float | str | type(None) | ti.Matrix | np.generic):
        return repr(x).replace("\n", " ")
    return type(x).__name__


def answer(kind: Kind, operation: str, names: dict[str, Any]) -> tuple[str, str]:
    """Lower the program for a pair: (text of the probed values, ""), or ("", error sentence and
    help)."""
    text = "def program(n: ti.i32, c: ti.i32{}):\n{}".format(
        f", {kind.params}" if kind.params else "",
        "".join(f"    {line}\n" for line in (kind.before, operation.format(x=kind.x)) if line),
    )
    file = f"<program {len(linecache.cache)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope = dict(names)
    exec(compile(text, file, "exec"), scope)
    noted: list[str] = []
    CALLS[probe] = CallHandler(lambda cx, *xs: noted.append(" ".join(map(said, xs))))
    try:
        lower(scope["program"])
    except VkchiError as e:
        return "", re.sub("<program [0-9]+>", "", words_of(e))
    finally:
        del CALLS[probe]
    found = noted[0] if noted else "nothing"
    return (found if len(noted) < 2 else f"{found} x{len(noted)}"), ""


def words_of(e: VkchiError) -> str:
    """An error's sentence and help."""
    if not isinstance(e, CompilationError):
        return f"{type(e).__name__}: {e}"
    return e.sentence + (f"; help: {e.help}" if e.help else "")


def lower(fn: Any) -> None:
    """Lower a kernel for arguments that fit it."""
    signer = Signer(read_parameters(fn, False))
    made = {"a": ti.ndarray(ti.f32, 4), "t": ti.Texture(ti.Format.r32f, (4,)), "n": 3, "c": 1}
    if "b" in fn.__code__.co_varnames[: fn.__code__.co_argcount]:
        made["b"] = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=8)
    args = tuple(made[name] for name in fn.__code__.co_varnames[: fn.__code__.co_argcount])
    args = signer.adopt(args)
    key = signer.sign(args)
    lowered = lower_kernel(fn, signer.specs(args, key), current_runtime().options)
    verify(lowered.func)


def number_of(text: str) -> str:
    """An error's number, a hash of its text, which does not depend on other errors."""
    return f"E{zlib.crc32(text.encode()) & 0xFFFFF:05x}"


def table(names: dict[str, Any]) -> str:
    """Text of the table: a row per kind, a column per operation, then the numbered errors."""
    errors: dict[str, str] = {}
    rows = [["", *OPERATIONS]]
    for name, kind in KINDS.items():
        row = [name]
        for operation in OPERATIONS.values():
            found, wrong = answer(kind, operation, names)
            row.append(errors.setdefault(wrong, number_of(wrong)) if wrong else found)
        rows.append(row)
    assert len(set(errors.values())) == len(errors)
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [" | ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *[f"{number}: {text}" for text, number in errors.items()], ""])
