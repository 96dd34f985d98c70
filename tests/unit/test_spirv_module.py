"""Words and text: literals, strings, the disassembler, the SPIRV-Tools programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vkchi.errors import InternalError
from vkchi.ir.core import bits_of
from vkchi.ir.text import parse_func
from vkchi.opt.pipeline import lower_dispatch
from vkchi.spirv import emit, spec
from vkchi.spirv.disasm import OPCODES, decode_string, disassemble, float_text
from vkchi.spirv.module_builder import SpirvModule, encode_string, iterate_instructions
from vkchi.target.caps import FULL
from vkchi.target.shader import SERIAL
from vkchi.types import f16, f32, f64


@pytest.mark.parametrize("text", ["", "a", "main", "GLSL.std.450", "feld_größe"])
def test_string_literals(text: str) -> None:
    words = encode_string(text)
    assert decode_string([*words, 7]) == (text, len(words))
    assert len(words) == len(text.encode()) // 4 + 1


def test_types_and_constants_are_interned() -> None:
    m = SpirvModule()
    word = m.type(spec.OpTypeInt, 32, 0)
    assert m.type(spec.OpTypeInt, 32, 0) == word != m.type(spec.OpTypeInt, 32, 1)
    five = m.constant(spec.OpConstant, word, (5,), 5)
    assert m.constant(spec.OpConstant, word, (5,), 5) == five
    assert m.bits[five] == 5
    assert m.fresh_type(spec.OpTypeStruct, word) != m.fresh_type(spec.OpTypeStruct, word)


@pytest.mark.parametrize(
    ("value", "t", "text"),
    [
        (1.5, f32, "1.5"), (-0.0, f32, "-0.0"), (0.1, f64, "0.1"), (0.1, f32, "0.1"),
        (np.inf, f32, "0x1p+128"), (-np.inf, f16, "-0x1p+16"), (np.inf, f64, "0x1p+1024"),
        (np.nan, f32, "0x1.800000p+128"), (1e-45, f32, "0x1.0000000000000p-149"),
    ],
)  # fmt: skip
def test_float_literals(value: float, t: Any, text: str) -> None:
    assert float_text(bits_of(value, t), t.bits).startswith(text)


def test_narrow_signed_literals_are_extended() -> None:
    text = """func @k(%x: array<i8[]>, %y: array<i16[]>) {
      %a = const -3 : i8
      %b = const -300 : i16
      %p = elem %x : ptr<i8 global>
      %q = elem %y : ptr<i16 global>
      store %p, %a
      store %q, %b
      yield
    }"""
    shown = disassemble(emit(lower_dispatch(parse_func(text), FULL), SERIAL, FULL, "k").words)
    assert "%i8_n3 = OpConstant %i8 -3\n" in shown
    assert "%i16_n300 = OpConstant %i16 -300\n" in shown


def test_no_opcode_has_two_names() -> None:
    names = [name for name in vars(spec) if name.startswith("Op")]
    assert len(OPCODES) == len(names)


def test_invalid_module_raises() -> None:
    words = emit(parse_func("func @k() {\nyield\n}"), SERIAL, FULL, "k").words
    with pytest.raises(InternalError, match="not a SPIR-V module"):
        disassemble(b"\0" * 20)
    with pytest.raises(InternalError, match="does not begin an instruction"):
        disassemble(words + np.array([5 << 16 | spec.OpLabel], "<u4").tobytes())
    with pytest.raises(InternalError, match="opcode 400"):
        disassemble(words + np.array([1 << 16 | 400], "<u4").tobytes())
    assert [code for code, _ in iterate_instructions(np.frombuffer(words, "<u4").tolist())][
        -1
    ] == 56


@pytest.mark.parametrize("words", [b"abc", b"", bytes.fromhex("03022307"), b"\0" * 20])
def test_bytes_that_are_no_module_raise(words: bytes) -> None:
    with pytest.raises(InternalError, match="not a SPIR-V module"):
        disassemble(words)
