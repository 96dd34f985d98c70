"""Every public name of Taichi 1.7 exists, or its error names a replacement.

`names.txt` lists them: `ti.math.vec3`, and members of classes as `ti.Matrix.norm`.
"""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vkchi as ti
from vkchi.compat.unsupported import TABLE, UnsupportedName, reason_for
from vkchi.errors import Unsupported

ROOT = Path(__file__).parents[2]
NAMES = (Path(__file__).parent / "names.txt").read_text().split()


# Classes whose members are those of an object, and one such object.
OBJECTS = {
    "Field": lambda: ti.field(ti.f32, 2),
    "ScalarField": lambda: ti.field(ti.f32, 2),
    "MatrixField": lambda: ti.Matrix.field(2, 2, ti.f32, 2),
    "StructField": lambda: ti.Struct.field({"a": ti.f32}, shape=2),
    "ScalarNdarray": lambda: ti.ndarray(ti.f32, 2),
    "MatrixNdarray": lambda: ti.Matrix.ndarray(2, 2, ti.f32, 2),
    "Struct": lambda: ti.Struct(a=1, b=2.0),
    "SNode": lambda: ti.root,
}


def look_up(path: str) -> object:
    """Resolve a dotted name, step by step."""
    first, *rest = path.split(".")[1:]
    found: object = OBJECTS[first]() if first in OBJECTS and rest else getattr(ti, first)
    for name in rest:
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("path", NAMES)
def test_a_name_exists_or_raises(path: str) -> None:
    try:
        look_up(path)
    except Unsupported as error:
        assert "is not supported yet: " in str(error)


@pytest.mark.parametrize("path", TABLE)
def test_the_table_holds_nothing_that_is_there(path: str) -> None:
    with pytest.raises(Unsupported) as error:
        look_up(f"ti.{path}")()  # attributes of a class raise when they are called
    assert str(error.value).startswith(f"ti.{path} is not supported yet: ")


@pytest.mark.parametrize(
    "statement",
    [
        "from vkchi.math import vec3",
        "from vkchi.math import *",
        "import vkchi.math as tm; tm.vec3(1)",
        "from vkchi.lang.matrix import Vector, Matrix, MatrixField, VectorNdarray, VectorType",
        "from vkchi.lang.struct import Struct, StructField",
        "from vkchi.lang.impl import static, grouped, field, ndarray, root",
        "from vkchi.lang.ops import sin, atomic_add, cast",
        "from vkchi.lang.kernel_impl import kernel, func, data_oriented",
        "from vkchi.lang.field import Field, ScalarField",
        "from vkchi.lang.snode import SNode",
        "from vkchi.lang.misc import init, reset, loop_config, cpu, gpu, ij",
        "from vkchi.lang.util import to_numpy_type, to_taichi_type, has_pytorch, cook_dtype",
        "from vkchi.lang.exception import TaichiCompilationError, TaichiRuntimeError",
        "from vkchi.lang.enums import Layout, Format",
        "from vkchi.lang._ndarray import Ndarray, ScalarNdarray",
        "from vkchi.lang._ndrange import ndrange",
        "from vkchi.lang._texture import Texture",
        "from vkchi.lang.runtime_ops import sync",
        "from vkchi.lang.simt import block, subgroup",
        "import vkchi.lang.simt.block",
        "import vkchi.simt.block as block; block.sync",
        "from vkchi.simt import warp, grid",
        "from vkchi.types import ndarray, vector, matrix, struct, template",
        "from vkchi.types.primitive_types import f32, i32, u8",
        "from vkchi.types.quant import fixed, float, int",
        "from vkchi.types import quant; quant.int(5)",
        "from vkchi.types.annotations import template",
        "from vkchi.types.ndarray_type import ndarray, NdarrayType",
        "from vkchi.types.compound_types import vector, matrix, struct",
        "from vkchi.types.utils import is_integral, is_real",
        "import vkchi.types.primitive_types as p; p.f32",
        "from vkchi.algorithms import parallel_sort, PrefixSumExecutor",
        "from vkchi.linalg import MatrixFreeCG",
        "from vkchi.tools import imread, imwrite",
        "from vkchi.ui import Camera, Canvas, Scene, Window, make_camera",
        "from vkchi.experimental import real_func",
        "from vkchi.graph import Arg, ArgKind, Graph, GraphBuilder",
        "from vkchi.ui.gui import GUI, rgb_to_hex",
        "from vkchi.ui.ui import make_camera, Window",
        "import vkchi; vkchi.ui.gui.GUI; vkchi.ui.imgui.Gui",
        "from vkchi.ad._ad import Tape, FwdMode, grad_for",
        "from vkchi.graph._graph import GraphBuilder, ArgKind",
        "from vkchi.profiler.kernel_profiler import print_kernel_profiler_info",
        "from vkchi.profiler.scoped_profiler import print_scoped_profiler_info",
        "from vkchi.sparse._sparse_grid import grid, usage",
        "import vkchi.ad, vkchi.ui, vkchi.graph, vkchi.aot, vkchi.sparse, vkchi.profiler",
    ],
)
def test_taichi_imports_work(statement: str) -> None:
    exec(statement, {})


@pytest.mark.parametrize(
    "statement",
    [
        "from vkchi import Mesh",
        "from vkchi.lang.impl import MeshInstance",
        "from vkchi.lang.matrix import Mesh",
        "import vkchi; vkchi.profiler.collect_kernel_profiler_metrics()",
    ],
)
def test_imports_of_missing_names(statement: str) -> None:
    with pytest.raises(UnsupportedName, match="is not supported yet: "):
        exec(statement, {})


@pytest.mark.parametrize(
    "statement",
    ["from vkchi import nonsense", "import vkchi.nonsense", "from vkchi.lang.impl import nonsense"],
)
def test_imports_of_unknown_names(statement: str) -> None:
    with pytest.raises(ImportError):
        exec(statement, {})


def test_names_that_never_were() -> None:
    for module in (ti, ti.types, ti.math, importlib.import_module("vkchi.lang.impl")):
        assert not hasattr(module, "nonsense")
    assert not hasattr(ti, "Mesh")


def test_modules_are_found_before_anything_else_is_imported() -> None:
    program = "from vkchi.math import vec3; import vkchi.lang.impl as m; print(m.static, vec3)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "<function ti.static> vec3\n", done.stderr


def test_every_reason_is_something_to_do() -> None:
    assert all(len(reason) > 10 and not reason.endswith(".") for reason in TABLE.values())
    assert reason_for("profiler.CuptiMetric") == TABLE["profiler.CuptiMetric"]
    assert reason_for("math.vec3") is None


def test_names_of_types_elsewhere() -> None:
    from vkchi.lang.util import to_numpy_type, to_taichi_type

    assert to_numpy_type(ti.i8) == "int8"
    assert to_taichi_type("float16") is ti.f16
    with pytest.raises(TypeError, match="no number type"):
        to_taichi_type("complex64")


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "CRITICAL"])
def test_logging_levels(level: str) -> None:
    ti.set_logging_level(getattr(ti, level))
    assert ti.is_logging_effective(getattr(ti, level))
    assert ti.is_logging_effective(ti.CRITICAL)
    assert ti.is_logging_effective(ti.TRACE) == (level == "TRACE")
    ti.set_logging_level(ti.WARN)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="no log level is called 'loud'"):
        ti.set_logging_level("loud")


@pytest.mark.parametrize("name", ["Format", "Tape", "Texture", "ad", "linalg", "svd", "vulkan"])
def test_names_that_are_loaded_later_are_listed(name: str) -> None:
    given: dict[str, object] = {}
    exec("from vkchi import *", given)
    assert given[name] is getattr(ti, name)
    assert name in dir(ti)


def test_a_star_gives_no_modules_of_ours() -> None:
    assert not {"errors", "aliases", "signature", "launch", "np"} & set(ti.__all__)


def test_rare_modules_are_loaded_lazily() -> None:
    program = "import sys, vkchi; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", program], text=True).split())
    later = {
        "tape",
        "compiler",
        "launch.elsewhere",
        "lang.linear_algebra.decompose",
        "launch",
        "linalg",
        "texture",
        "tools",
    }
    assert not loaded & {f"vkchi.{name}" for name in later}


def listed_as_missing() -> list[str]:
    """The names in the table of docs/language/differences.md; of a module one it might have."""
    text = (ROOT / "docs/language/differences.md").read_text()
    rows = text.partition("## Names that are not there")[2].splitlines()
    cells = [row.split("|")[1] for row in rows if row.startswith("| `ti.")]
    found = [name for cell in cells for name in re.findall(r"`ti\.([^`]+)`", cell)]
    return [name.replace("*", "some") for name in found]


@pytest.mark.parametrize("name", listed_as_missing())
def test_names_listed_as_missing(name: str) -> None:
    with pytest.raises(UnsupportedName, match="is not supported yet: "):
        functools.reduce(getattr, name.split("."), ti)
