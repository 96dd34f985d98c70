"""Subgroup operations on narrow and wide numbers by those on 32 bits, in the interpreter (where a
subgroup is one invocation); whole workgroups keep results."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vkchi.errors import DeviceError, KernelSyntaxError
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.op_table.invocation_ops import ARITHMETIC, EXCHANGES, REFERENCE, SPANS
from vkchi.ir.ops import TABLE
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify
from vkchi.opt.lowering.legalize import legalize
from vkchi.opt.lowering.subgroups import out_of_range_exchanges
from vkchi.opt.mapping.padding import pad_to_workgroup
from vkchi.target.caps import FULL, SMALLEST
from vkchi.target.shader import Shader, row_grid
from vkchi.types import SCALARS, Array, Scalar, bf16, i32, u1, u32
from vkchi.vk.physical import choose_subgroup
from vkchi.vk.pipelines import needs_full_subgroups, required_subgroup

REDUCTIONS = [f"subgroup_{span}{name}" for span in SPANS for name in ARITHMETIC]
BITWISE = ("and", "or", "xor")
VALUES = [f"subgroup_{name}" for name in (*EXCHANGES, "first")]


def has_row(kind: str, t: Scalar) -> bool:
    """True if the op takes the type."""
    if kind in VALUES or kind == "subgroup_all_equal":
        return True
    return t.kind != ("f" if kind.endswith(BITWISE) else "b")


def program(kind: str, t: Scalar) -> Func:
    """y[i] = op(x[i]) for all i."""
    out = u1 if kind == "subgroup_all_equal" else t
    x, y, b, i = Param(Array.of(t, 1), "x"), Param(Array.of(out, 1), "y"), Builder(), Param(i32)
    with b.region() as body:
        with b.region(i) as loop:
            v = b.emit("load", b.emit("elem", x, i))
            more = (b.const(0, u32),) if len(TABLE[kind].sig.split(",")) > 1 else ()
            b.emit("store", b.emit("elem", y, i), b.emit(kind, v, *more))
            b.emit("yield")
        b.parallel((b.const(0, i32), b.emit("shape", x, attr=0)), loop)
        b.emit("yield")
    return Func("f", (x, y), body)


@pytest.mark.parametrize("t", [t for t in SCALARS.values() if t is not bf16], ids=str)
def test_subgroup_ops_of_other_widths(t: Scalar) -> None:
    data = np.array([0, 1, 1, 0, 1] if t is u1 else [3, 100, 7, 0, 90]).astype(t.dtype)
    for kind in [*REDUCTIONS, *VALUES, "subgroup_all_equal"]:
        if not has_row(kind, t):
            continue
        fn = program(kind, t)
        new = legalize(fn, FULL)
        verify(new)
        took = {str(op.args[0].type) for op in walk(new.body) if op.kind == kind}
        is_wide_reduction = kind in REDUCTIONS and t.bits == 64
        assert took <= {"i32", "u32", "f32", "f64"} or is_wide_reduction or t is u1
        want = {
            "x": data,
            "y": np.zeros_like(run_reference(fn, {"x": data, "y": empty(kind, data)})["y"]),
        }
        got = {name: v.copy() for name, v in want.items()}
        run_reference(fn, want)
        run_reference(new, got)
        np.testing.assert_array_equal(got["y"], want["y"], err_msg=kind)


def empty(kind: str, data: np.ndarray) -> np.ndarray:
    """An array for the results."""
    return np.zeros(data.shape, np.bool_ if kind == "subgroup_all_equal" else data.dtype)


def test_missing_subgroup_features() -> None:
    for kind in [*REDUCTIONS, *VALUES, "subgroup_all_equal"]:
        with pytest.raises(DeviceError, match="is not available on this device"):
            legalize(program(kind, i32), SMALLEST)
    bare = FULL._replace(subgroup_wide=False)
    with pytest.raises(DeviceError, match="subgroup inclusive_add of i64 is not available"):
        legalize(program("subgroup_inclusive_add", SCALARS["i64"]), bare)
    assert legalize(program("subgroup_shuffle", SCALARS["i64"]), bare)
    ballot = parse_func("func @f(%a: u1) {\n  %b = subgroup_ballot %a : u32\n  yield\n}\n")
    with pytest.raises(DeviceError, match="more invocations than a ballot's 32 bits"):
        legalize(ballot, FULL._replace(subgroup_size=64))
    for kind, t in (("subgroup_ballot_wide", "u64"), ("warp_ballot", "u32")):
        fn = parse_func(f"func @f(%a: u1) {{\n  %b = {kind} %a : {t}\n  yield\n}}\n")
        for lack in ({"subgroup_size": 128}, {"subgroup_size": 64, "int64": False}):
            with pytest.raises(DeviceError, match="a ballot's 64 bits|u64 is not available"):
                legalize(fn, FULL._replace(**lack))
        with pytest.raises(DeviceError, match="not available on this device"):
            legalize(fn, SMALLEST)


# --- warps of 32 in larger subgroups -------------------------------------------------------------

WARP = """func @f(%a: u1, %y: array<u32[1]>) {
  %b = warp_ballot %a : u32
  %zero = const 0 : i32
  %p = elem %y, %zero : ptr<u32 global>
  store %p, %b
  yield
}
"""


@pytest.mark.parametrize("index", range(64))
def test_a_warp_is_a_half_of_64(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = 0x89ABCDEF_01234567
    monkeypatch.setitem(REFERENCE, "subgroup_ballot_wide", lambda args, t: np.uint64(votes))
    monkeypatch.setitem(REFERENCE, "subgroup_ballot", lambda args, t: np.uint32(votes & 0xFFFFFFFF))
    monkeypatch.setitem(REFERENCE, "subgroup_index", lambda args, t: np.int32(index))
    for size in (64, 32, 8):
        new = legalize(parse_func(WARP), FULL._replace(subgroup_size=size))
        verify(new)
        got = {"a": np.bool_(True), "y": np.zeros(1, np.uint32)}
        run_reference(new, got)
        want = votes >> 32 if size == 64 and index >= 32 else votes & 0xFFFFFFFF
        assert got["y"][0] == want
    word = legalize(parse_func(WARP), FULL._replace(int64=False))
    assert [op.kind for op in walk(word.body)][0] == "subgroup_ballot"


# --- whole workgroups ----------------------------------------------------------------------------

SHORT = Path(__file__).parents[1] / "golden" / "passes" / "padding" / "short.chi"


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 100])
def test_whole_workgroups(n: int) -> None:
    fn = parse_func(SHORT.read_text(encoding="utf-8").split("; expect:\n")[0])
    new = pad_to_workgroup(fn, FULL)
    assert new is not fn
    results = [
        run_reference(
            code, {"x": np.arange(1, n + 1, dtype=np.int32), "total": np.array(7, np.int32)}
        )
        for code in (fn, new)
    ]
    np.testing.assert_array_equal(results[1]["x"], results[0]["x"])
    assert results[1]["total"] == results[0]["total"] == 7 + n * (n + 1) // 2


DIVERGENT = """func @f(%a: i32) {{
  %zero = const 0 : i32
  %n = const 64 : i32
  parallel %zero, %n [32] {{
    ^(%i: i32)
    %five = const 5 : i32
    %t = local_index : i32
    %m = mod %t, %five : i32
    %g = floordiv %i, %n : i32
    {condition}
    if %c {{
      barrier
      yield
    }} {{
      yield
    }}
    yield
  }}
  yield
}}
"""


@pytest.mark.parametrize(
    ("condition", "is_refused"),
    [
        ("%c = lt %t, %five : u1", True),
        ("%c = lt %t, %n : u1", False),
        ("%c = gt %five, %t : u1", True),
        ("%c = eq %t, %five : u1", True),
        ("%c = eq %t, %n : u1", False),
        ("%c = eq %m, %zero : u1", True),
        ("%c = lt %m, %five : u1", False),
        ("%c = eq %g, %zero : u1", False),
        ("%c = lt %i, %five : u1", False),
        ("%c = lt %t, %a : u1", False),
        ("%c = gt %a, %five : u1", False),
        ("%c = subgroup_elect : u1", True),
    ],
)
def test_barriers_that_some_miss(condition: str, is_refused: bool) -> None:
    fn = parse_func(DIVERGENT.format(condition=condition))
    if not is_refused:
        assert pad_to_workgroup(fn, FULL) is fn
        return
    with pytest.raises(KernelSyntaxError, match="only some invocations"):
        pad_to_workgroup(fn, FULL)


@pytest.mark.parametrize(
    ("default", "least", "can_ask", "chosen"),
    [
        (64, 32, True, 32),
        (64, 32, False, 64),
        (64, 64, True, 64),
        (8, 8, True, 8),
        (32, 8, True, 32),
    ],
)
def test_warps_are_of_32_where_a_device_can(
    default: int, least: int, can_ask: bool, chosen: int
) -> None:
    bit = 0x20
    vk: Any = SimpleNamespace(const=SimpleNamespace(VK_SHADER_STAGE_COMPUTE_BIT=bit))
    in11 = SimpleNamespace(subgroupSize=default)
    in13 = SimpleNamespace(requiredSubgroupSizeStages=bit * can_ask, minSubgroupSize=least)
    assert choose_subgroup(vk, ["subgroupSizeControl"], in11, in13) == chosen
    assert choose_subgroup(vk, [], in11, in13) == default


@pytest.mark.parametrize(
    ("can", "size", "block", "asked", "full"),
    [
        (True, 32, 64, 32, True),
        (True, 32, 16, 32, False),
        (True, 32, 48, 32, False),
        (True, 64, 64, 64, True),
        (True, 16, 64, 0, False),
        (True, 128, 128, 0, False),
        (False, 32, 64, 0, False),
    ],
)
def test_sizes_are_asked_for_where_a_device_has_them(
    can: bool, size: int, block: int, asked: int, full: bool
) -> None:
    """Of 32 or 64; of a shader that does not depend on it, none is."""
    features = {"computeFullSubgroups"}
    own = FULL._replace(subgroup_least=32, subgroup_most=64)
    device: Any = SimpleNamespace(features=features, caps=own, can_require_subgroup_size=can)
    grid = row_grid(("const", 1000), block, guard=True)
    shader = Shader("f", b"", (), 0, False, grid, ("subgroup_size",))
    caps = FULL._replace(subgroup_size=size)
    assert required_subgroup(shader, caps, device) == asked
    assert needs_full_subgroups(shader, asked, device) is full
    assert required_subgroup(shader._replace(needs=()), caps, device) == 0
    features.clear()
    assert not needs_full_subgroups(shader, asked, device)


# --- exchanges beyond a subgroup -----------------------------------------------------------------

EXCHANGE = """func @f(%x: array<f32[64]>, %n: i32, %u: u32) {{
  %zero = const 0 : i32
  %two = const 2 : i32
  %c = const 16 : u32
  %few = const 3 : u32
  %count = const 64 : i32
  %size = subgroup_size : i32
  %from = const 16 : i32
  %many = gt %size, %from : u1
  %mine = gt %n, %from : u1
  parallel %zero, %count {{
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    %v = load %p : f32
    {body}
    yield
  }}
  yield
}}
"""
IN_FOR = """for %zero, {end} {{
      ^(%k: i32)
      %s = shr %from, %k : i32
      %b = bitcast %s : u32
      %r = subgroup_shuffle_xor %v, %b : f32
      yield
    }}"""
IN_WHILE = """%last = while %from : i32 {{
      ^(%o: i32)
      %go = gt %o, {limit} : u1
      yield %go
    }} {{
      ^(%o1: i32)
      %b = bitcast %o1 : u32
      %r = subgroup_shuffle_down %v, %b : f32
      %o2 = truncdiv %o1, %two : i32
      yield %o2
    }}"""
UNDER = """if {condition} {{
      %r = subgroup_shuffle_up %v, %c : f32
      yield
    }} {{
      yield
    }}"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("%r = subgroup_shuffle_down %v, %c : f32", "subgroup_shuffle_down 16"),
        ("%r = subgroup_broadcast %v, %c : f32", "subgroup_broadcast 16"),
        ("%o = or %u, %c : u32\n    %r = subgroup_shuffle %v, %o : f32", "subgroup_shuffle 16"),
        ("%a = and %u, %c : u32\n    %r = subgroup_shuffle %v, %a : f32", None),
        ("%r = subgroup_shuffle_xor %v, %few : f32", None),
        ("%r = subgroup_shuffle_xor %v, %u : f32", None),
        (IN_FOR.format(end="%count"), "subgroup_shuffle_xor 16"),
        (IN_FOR.format(end="%n"), None),
        (IN_WHILE.format(limit="%zero"), "subgroup_shuffle_down 16"),
        (IN_WHILE.format(limit="%n"), None),
        (UNDER.format(condition="%mine"), "subgroup_shuffle_up 16"),
        (UNDER.format(condition="%many"), None),
    ],
)
def test_exchanges_beyond_a_subgroup(body: str, said: str | None) -> None:
    """Found where there is no such invocation, unless the program asks for the size."""
    fn = parse_func(EXCHANGE.format(body=body))
    verify(fn)
    assert not [*out_of_range_exchanges(fn, 32)]
    assert [f"{op.kind} {k[0]}" for op, k in out_of_range_exchanges(fn, 8)] == (
        [said] if said else []
    )
