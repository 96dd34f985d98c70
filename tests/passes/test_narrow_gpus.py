"""GPUs with subgroups as narrow as SIMD (Mali, VideoCore) are compiled for as GPUs."""

from __future__ import annotations

import pytest

from vkchi.ir.core import Program, walk
from vkchi.ir.text import parse_func
from vkchi.opt.cost_model import choose_tile, is_worth_sharing, least_threads, most_threads
from vkchi.opt.mapping.map_grid import map_grid
from vkchi.opt.pipeline import find_fills
from vkchi.target.caps import FULL, SMALLEST, Caps
from vkchi.target.devices import find_described

PLANE = """\
func @f(%x: array<f32[1024,1024]>) {
  %c0 = const 0 : i32
  %n = const 1024 : i32
  parallel %c0, %n, %c0, %n {
    ^(%i: i32, %j: i32)
    %e = elem %x, %i, %j : ptr<f32 global>
    %v = const 1.0 : f32
    store %e, %v
    yield
  }
  yield
}
"""


def narrow(name: str) -> Caps:
    """The capabilities of a GPU whose subgroups have 16 invocations at most."""
    found = find_described(name)
    assert found is not None and found.caps.subgroup_size <= 16
    return found.caps


GPUS = {name: narrow(name) for name in ("mali-valhall", "videocore-7", "smallest")}


@pytest.mark.parametrize("name", GPUS)
def test_each_iteration_has_an_invocation(name: str) -> None:
    """Two axes of the grid; on a CPU of the same capabilities, invocations with loops."""
    gpu = GPUS[name]
    cpu = gpu._replace(kind="cpu")
    for caps, axes, loops in ((gpu, 4, 0), (cpu, 2, 1)):
        ops = list(walk(map_grid(parse_func(PLANE), caps).body))
        (parallel,) = (op for op in ops if op.kind == "parallel")
        assert len(parallel.args) == axes
        assert len([op for op in ops if op.kind == "for"]) >= loops
        assert loops or not any(op.kind == "for" for op in ops)


@pytest.mark.parametrize("name", GPUS)
def test_numbers_of_invocations_and_tiles(name: str) -> None:
    """Those of any GPU, whatever the width of its subgroups."""
    caps, cpu = GPUS[name], GPUS[name]._replace(kind="cpu")
    assert most_threads(caps) == most_threads(FULL) > most_threads(cpu)
    assert least_threads(caps) == least_threads(FULL)
    assert not is_worth_sharing(1 << 24, caps, is_light=False)
    assert is_worth_sharing(1 << 24, cpu, is_light=False)
    square = choose_tile((1024, 1024), caps, is_square=True)
    assert square is not None and square[0] == square[1]
    assert choose_tile((1024, 1024), cpu, is_square=True) == (1, 128)


@pytest.mark.parametrize("name", GPUS)
def test_fills_are_dispatches(name: str) -> None:
    """A GPU sets memory by a dispatch, which costs it little."""
    fn = parse_func(PLANE)
    program, gpu = Program(fn.name, (fn,)), GPUS[name]
    assert find_fills(program, gpu) == {}
    assert list(find_fills(program, gpu._replace(kind="cpu"))) == ["f"]


def test_device_kinds() -> None:
    assert [k for k in ("other", "integrated", "discrete", "virtual", "cpu") if Caps(k).is_cpu] == [
        "cpu"
    ]
    assert not SMALLEST.is_cpu and not FULL.is_cpu
    assert FULL._replace(kind="cpu", subgroup_size=64).is_cpu
