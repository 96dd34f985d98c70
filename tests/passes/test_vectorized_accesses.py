"""Wide accesses as a processor has them: words of 64 or 32 bits where alignment is proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vkchi.ir.core import Func, Program, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify
from vkchi.opt.memory.neighbours import join_neighbours
from vkchi.target.caps import FULL

PROCESSOR = FULL._replace(kind="cpu", subgroup_size=8)
COPY = """
func @copy(%x: array<{t}[?]> noalias aligned {aligned}, %y: array<{t}[?]> {y}, %i: u32) {{
  %c{count} = const {count} : u32
  %o = mul %i, %c{count} : u32
{body}
  yield
}}
"""


def copy_of(t: str, count: int, first: int = 0, aligned: int = 16) -> Func:
    """A Func that copies so many numbers, one after the other, to places one further on."""
    body = "\n".join(
        f"  %p{k} = address %x, %o [{first + k}] : ptr<{t} global>\n"
        f"  %v{k} = load %p{k} : {t}\n"
        f"  %q{k} = address %y, %o [{k}] : ptr<{t} global>\n"
        f"  store %q{k}, %v{k}"
        for k in range(count)
    )
    return parse_func(
        COPY.format(t=t, count=count, body=body, aligned=aligned, y="noalias aligned 16")
    )


def accesses(fn: Func) -> list[tuple[str, str, Any]]:
    return [
        (op.kind, str(op.type or op.args[1].type), op.attr)
        for op in walk(fn.body)
        if op.kind in ("load", "store")
    ]


def both(t: str, attr: int | None) -> list[tuple[str, str, Any]]:
    return [("load", t, attr), ("store", t, attr)]


CASES = {
    "pairs": (copy_of("f32", 4), both("u64<2>", 16)),
    "eight": (copy_of("f32", 8), both("u64<4>", 16)),
    "halves": (copy_of("f16", 4), both("u64", None)),
    "bytes": (copy_of("u8", 4), both("u32", None)),
    "eight bytes": (copy_of("i8", 8), both("u64", None)),
    "doubles": (copy_of("f64", 2), both("f64<2>", 16)),
    "unaligned": (
        copy_of("f32", 4, aligned=1),
        [("load", "f32<4>", None), ("store", "u64<2>", 16)],
    ),
    "odd": (
        copy_of("f32", 4, first=1),
        [("load", t, k) for t, k in (("f32", None), ("u64", None), ("f32", 16))]
        + [("store", "u64<2>", 16)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_words_of_processors(name: str) -> None:
    fn, expected = CASES[name]
    made = join_neighbours(fn, PROCESSOR)
    verify(made)
    assert accesses(made) == expected
    dtype = np.dtype(str(fn.params[0].type.elem.dtype))  # type: ignore[attr-defined]
    numbers = np.arange(40).astype(dtype)
    results = []
    for one in (fn, made):
        arrays = {"x": numbers.copy(), "y": np.zeros(40, dtype), "i": np.uint32(2)}
        run_reference(Program("copy", (one,)), arrays)
        results.append(arrays["y"])
    assert (results[0] == results[1]).all()
    assert results[0].any()


def test_words_without_64_bits() -> None:
    made = join_neighbours(copy_of("u8", 8), PROCESSOR._replace(int64=False))
    assert accesses(made) == both("u32<2>", 8)
