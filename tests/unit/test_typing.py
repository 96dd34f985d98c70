"""What a user's type checker makes of the public names."""

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

ROOT = Path(__file__).parents[2]
PROGRAM = """\
import vkchi as ti

ti.init(arch=ti.vulkan, default_fp=ti.f32)
reveal_type(ti.field(ti.f32, shape=(2, 3)))
reveal_type(ti.field(float, 4))
reveal_type(ti.Vector.field(2, ti.f32, shape=3))
reveal_type(ti.ndarray(ti.i32, shape=4))
reveal_type(ti.Vector([1.0, 2.0]).dot([1, 2]))
reveal_type(ti.field(ti.f32, 4).to_numpy())
ti.field("f32", 4)
ti.field(ti.f32, shape="many")
"""
SEEN = [
    (4, "vkchi.fields.field.ScalarField"),
    (5, "vkchi.fields.field.ScalarField"),
    (6, "vkchi.fields.field.MatrixField"),
    (7, "vkchi.ndarray.ScalarNdarray"),
    (8, "float"),
    (9, "numpy.ndarray"),
    (10, "No overload"),
    (11, "incompatible type"),
]


def test_results_have_types_and_wrong_arguments_are_found(tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    said, _, _ = api.run(["--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache'}",
                          "--config-file=", str(program)])  # fmt: skip
    lines = said.splitlines()
    for number, text in SEEN:
        assert any(f"program.py:{number}:" in line and text in line for line in lines), said
