"""The Shader record that emission gives: slots, offsets, needs; and unsupported ops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vkchi.errors import DeviceError, InternalError
from vkchi.ir.core import Func, Op, Region
from vkchi.ir.text import parse_func
from vkchi.opt.pipeline import lower_dispatch
from vkchi.spirv import emit
from vkchi.spirv.disasm import disassemble
from vkchi.spirv.module_builder import with_workgroup_shape
from vkchi.target.caps import FULL, SMALLEST, Caps
from vkchi.target.shader import SERIAL, ArgumentSlot, Grid, GridAxis, Shader, row_grid
from vkchi.types import i32

GUARDED = row_grid(("arg", "n"), 64, guard=True)


def emit_text(text: str, grid: Grid = SERIAL, caps: Caps = FULL) -> Shader:
    return emit(lower_dispatch(parse_func(text), caps), grid, caps, "k")


def function_text(shader: Shader) -> str:
    text = disassemble(shader.words)
    return text[text.index("= OpFunction ") :]


def test_only_used_constants_have_a_slot() -> None:
    text = """func @k(%a: f32, %unused: f64, %x: array<f32[?]>, %none: array<f32[?]>, %n: i32) {
      %z = const 0 : i32
      %end = shape %none [0] : i32
      parallel %z, %end {
        ^(%i: i32)
        %p = elem %x, %i [inbounds] : ptr<f32 global>
        store %p, %a
        yield
      }
      yield
    }"""
    shader = emit_text(text, GUARDED)
    assert shader.slots == (
        ArgumentSlot("ptr", "x", 0, "f32", 0),
        ArgumentSlot("count", "", 0, "i32", 8),
        ArgumentSlot("value", "a", 0, "f32", 12),
    )
    assert (shader.size_bytes, shader.indirect, shader.needs) == (16, False, ())


def test_wide_slots_come_before_narrow_ones() -> None:
    planes = "array<f32<2>[4] @(1%0*1;0,4;8;)>"  # no spare element: others go to the trash
    text = f"""func @k(%a: i8, %b: f64<2>, %h: f16, %t: u1, %x: array<f64[??]>, %y: {planes}) {{
      %i = cast %a : i32
      %k = cast %h : i32
      %j = select %t, %i, %k : i32
      %p = elem %x, %i, %j : ptr<f64 global>
      %c = sum %b : f64
      store %p, %c
      %q = elem %y, %i : ptr<f32<2> global>
      %o = load %q : f32<2>
      store %q, %o
      yield
    }}"""
    shader = emit_text(text)
    assert shader.slots == (
        ArgumentSlot("ptr", "x", 0, "f64", 0),
        ArgumentSlot("ptr", "y", 0, "f32", 8),
        ArgumentSlot("trash", "", 0, "u32", 16),
        ArgumentSlot("value", "b", 0, "f64", 24),
        ArgumentSlot("value", "b", 1, "f64", 32),
        ArgumentSlot("value", "a", 0, "i32", 40),
        ArgumentSlot("value", "h", 0, "f32", 44),
        ArgumentSlot("value", "t", 0, "u32", 48),
        ArgumentSlot("dim", "x", 1, "i32", 52),
        ArgumentSlot("size", "x", 0, "i32", 56),
    )
    assert shader.size_bytes == 60
    assert shader.needs == ("chain_casts", "float16", "float64", "int8")


@pytest.mark.parametrize(("push_bytes", "is_indirect"), [(128, True), (160, False), (256, False)])
def test_a_block_too_large_for_push_constants_is_indirect(
    push_bytes: int, is_indirect: bool
) -> None:
    names = [f"a{k}" for k in range(20)]
    params = ", ".join(f"%{name}: array<i32[]>" for name in names)
    ops = "".join(
        f"%p{k} = elem %{name} : ptr<i32 global>\n%v{k} = load %p{k} : i32\nstore %p{k}, %v{k}\n"
        for k, name in enumerate(names)
    )
    caps = FULL._replace(push_constant_bytes=push_bytes)
    shader = emit_text(f"func @k({params}) {{\n{ops}yield\n}}", caps=caps)
    assert (shader.size_bytes, shader.indirect) == (160, is_indirect)


def test_a_func_that_uses_nothing_has_no_block() -> None:
    shader = emit_text("func @k(%a: f32) {\nyield\n}")
    assert (shader.slots, shader.size_bytes, shader.indirect) == ((), 0, False)
    assert "PushConstant" not in disassemble(shader.words)


def test_proven_accesses_need_no_trash() -> None:
    text = "func @k(%x: array<f32[]>, %y: array<f32[4]>, %a: f32) {\n"
    text += "%c = const 3 : i32\n%p = elem %x : ptr<f32 global>\nstore %p, %a\n"
    text += "%q = elem %y, %c : ptr<f32 global>\nstore %q, %a\nyield\n}"
    assert [slot.kind for slot in emit_text(text).slots] == ["ptr", "ptr", "value"]


def test_64_bit_indices_get_a_64_bit_size() -> None:
    text = "func @k(%x: array<f32[??]>, %i: i64, %a: f32) {\n"
    text += "%p = elem %x, %i, %i : ptr<f32 global>\nstore %p, %a\nyield\n}"
    shader = emit_text(text)
    assert next(slot for slot in shader.slots if slot.kind == "size").dtype == "i64"
    assert "int64" in shader.needs


def test_a_large_static_array_needs_64_bit_indices() -> None:
    text = "func @k(%x: array<f32[70000,70000]>, %i: i32, %a: f32) {\n"
    text += "%p = elem %x, %i, %i [inbounds] : ptr<f32 global>\nstore %p, %a\nyield\n}"
    assert "int64" in emit_text(text).needs
    with pytest.raises(DeviceError, match="k needs what this device lacks: int64"):
        emit_text(text, caps=SMALLEST)


@pytest.mark.parametrize(
    ("op", "t", "need"),
    [
        ("atomic_add", "f32", "f32_atomic_add"),
        ("atomic_add", "f64", "f64_atomic_add"),
        ("atomic_max", "i64", "i64_atomics"),
        ("atomic_cas", "f64", "i64_atomics"),
        ("atomic_min", "i32", ""),
        ("atomic_exchange", "f32", ""),
    ],
)
def test_needs_of_atomics(op: str, t: str, need: str) -> None:
    extra = ", %v" if op == "atomic_cas" else ""
    text = f"func @k(%x: array<{t}[]>, %v: {t}) {{\n%p = elem %x : ptr<{t} global>\n"
    text += f"%o = {op} %p, %v{extra} : {t}\nyield\n}}"
    atomics = [name for name in emit_text(text).needs if "atomic" in name]
    assert atomics == [need] * bool(need)


@pytest.mark.parametrize(
    ("op", "t"),
    [("atomic_mul", "i32"), ("atomic_min", "f64"), ("atomic_add", "i8"), ("atomic_add", "f16")],
)
def test_illegal_ops_raise(op: str, t: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_VERIFY", "0")  # the emitter raises, not the check of the form
    text = f"func @k(%x: array<{t}[]>, %v: {t}) {{\n%p = elem %x : ptr<{t} global>\n"
    with pytest.raises(InternalError, match="legalize must replace it"):
        emit_text(text + f"%o = {op} %p, %v : {t}\nyield\n}}")


def test_signed_zeros_are_asked_for_where_the_device_can() -> None:
    text = "func @k(%x: array<f32[]>, %v: f32) {\n%p = elem %x : ptr<f32 global>\n"
    text += "store %p, %v\nyield\n}"
    able = FULL._replace(signed_zero_inf_nan_f32=True)
    assert emit_text(text, caps=able).needs == ("signed_zero_inf_nan_f32",)
    assert "SignedZeroInfNanPreserve 32" in disassemble(emit_text(text, caps=able).words)
    assert emit_text(text).needs == ()
    fast = emit(lower_dispatch(parse_func(text), able), SERIAL, able, "k", is_fast=True)
    assert fast.needs == () and "SignedZero" not in disassemble(fast.words)


def test_an_unknown_op_raises() -> None:
    body = Region((), [Op("frobnicate", (), None, i32), Op("yield", (), None, None)])
    with pytest.raises(InternalError, match="no row for `frobnicate`"):
        emit(Func("k", (), body), SERIAL, FULL, "k")


def test_a_serial_grid_runs_no_loop() -> None:
    text = "func @k(%n: i32) {\nparallel %n, %n {\n^(%i: i32)\nyield\n}\nyield\n}"
    with pytest.raises(InternalError, match="a grid of 0 axes"):
        emit_text(text)


@pytest.mark.parametrize(("count", "has_rows"), [(64 * 65535, False), (64 * 65535 + 1, True)])
def test_the_second_dimension_is_used_only_where_the_grid_may_need_it(
    count: int, has_rows: bool
) -> None:
    text = f"func @k() {{\n%z = const 0 : i32\n%n = const {count} : i32\nparallel %z, %n {{\n"
    text += "^(%i: i32)\n%t = thread_index : i32\nyield\n}\nyield\n}"
    shader = emit_text(text, row_grid(("const", count), 64, guard=False))
    assert ("NumWorkgroups" in disassemble(shader.words)) == has_rows


def test_few_components_are_selected_and_constants_tabled() -> None:
    def text(size: int) -> str:
        numbers = ", ".join(f"{k}.0" for k in range(size))
        return f"""func @k(%k: i32, %v: f32<{size}>, %x: array<f32[]>) {{
          %c = const [{numbers}] : f32<{size}>
          %a = extract_at %c, %k : f32
          %b = extract_at %v, %k : f32
          %s = add %a, %b : f32
          %p = elem %x : ptr<f32 global>
          store %p, %s
          yield
        }}"""

    assert "OpVariable" not in function_text(emit_text(text(10)))
    assert "Private" not in disassemble(emit_text(text(8)).words)
    assert "Private" in disassemble(emit_text(text(9)).words)
    assert function_text(emit_text(text(11))).count("OpVariable") == 1


def test_modules_are_dumped_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_DUMP_SPV", str(tmp_path / "dumps"))
    shader = emit_text("func @k() {\nyield\n}")
    emit_text("func @k() {\nyield\n}")
    (file,) = (tmp_path / "dumps").iterdir()
    assert file.read_bytes() == shader.words
    assert len(file.stem) == 64 and file.suffix == ".spv"


@pytest.mark.parametrize(("exact", "count"), [(False, 0), (True, 8)])
def test_exact_sums_and_products_are_not_fused(exact: bool, count: int) -> None:
    text = """func @k(%a: f32, %b: f32, %v: f32<2>, %m: f32<2x2>, %y: array<f32[2] @(1%0*1;0;2;)>) {
      %t = mul %a, %b : f32
      %u = add %t, %a : f32
      %x = matmul %m, %v : f32<2>
      %w = extract %x [1] : f32
      %z = const 0 : i32
      %p = elem %y, %z [inbounds] : ptr<f32 global>
      store %p, %u
      %i = const 1 : i32
      %q = elem %y, %i [inbounds] : ptr<f32 global>
      store %q, %w
      yield
    }"""
    shader = emit(lower_dispatch(parse_func(text), FULL), SERIAL, FULL, "k", exact=exact)
    assert disassemble(shader.words).count("NoContraction") == count


AXES = """
func @k(%x: array<i32[??]>, %n: i32, %m: i32) {
  %c1 = const 1 : i32
  parallel %c1, %n, %c1, %m [(2, 64)] {
    ^(%i: i32, %j: i32)
    %t = thread_index : i32
    %p = elem %x, %i, %j : ptr<i32 global>
    store %p, %t
    yield
  }
  yield
}
"""


def test_grids_of_several_axes() -> None:
    """A guard and a first iteration where the axis has them; the number of an iteration from the
    counts; nothing is divided."""
    axes = (GridAxis(("arg", "m"), 64, True), GridAxis(("arg", "n"), 2, False, has_base=True))
    shader = emit_text(AXES, Grid(axes))
    text = disassemble(shader.words)
    assert "LocalSize 64 2 1" in text
    assert text.count("OpULessThan") == 1
    kinds = {(slot.kind, slot.axis) for slot in shader.slots if slot.kind in ("count", "base")}
    assert kinds == {("count", 0), ("base", 1)}
    assert not re.search("Op[US](Div|Mod|Rem)", text)


def test_grids_have_an_axis_for_each_of_the_loop() -> None:
    with pytest.raises(InternalError, match="a grid of 1 axes cannot run a loop over 2"):
        emit_text(AXES, GUARDED)


def test_workgroups_of_another_shape() -> None:
    axes = (GridAxis(("arg", "m"), 64, True), GridAxis(("arg", "n"), 2, True))
    plain = emit_text(AXES, Grid(axes))
    other = emit_text(AXES, Grid(tuple(a._replace(block=n) for a, n in zip(axes, (4, 32)))))
    assert with_workgroup_shape(plain, (4, 32)) == other
    with pytest.raises(InternalError, match="no workgroups of 1 axes"):
        with_workgroup_shape(plain, (128,))


def test_workgroup_ids_are_in_grids_of_one_row_only() -> None:
    text = AXES.replace("thread_index", "group_index")
    with pytest.raises(InternalError, match="several axes has no number"):
        emit_text(text, Grid((GridAxis(("arg", "m"), 64, True), GridAxis(("arg", "n"), 2, True))))


@pytest.mark.parametrize(("attr", "hint"), [("", "None"), ("[nounroll] ", "DontUnroll")])
def test_a_rolled_loop_stays_a_loop(attr: str, hint: str) -> None:
    text = f"""func @k(%x: array<f32[8]>) {{
      %z = const 0 : i32
      %end = const 8 : i32
      for %z, %end {attr}{{
        ^(%i: i32)
        %p = elem %x, %i [inbounds] : ptr<f32 global>
        %v = load %p : f32
        store %p, %v
        yield
      }}
      yield
    }}"""
    assert re.findall(r"OpLoopMerge \S+ \S+ (\w+)", function_text(emit_text(text))) == [hint]
