"""Layouts that are none of ours, made through the protocol alone: `types.layout.Layout`.

`Panels` cuts columns into panels of two, which lie one behind the other: a sum of digits, as fields
in blocks have, and more. `Turned` turns each row of the last axis by the number of the row: no sum
of digits and strides at all. Nothing under `vkchi/` knows of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz import test_fuzz
from tests.fuzz.programs import ALL, EXACT
from tests.fuzz.test_fuzz import plain_functions, small_machine
from tests.fuzz.test_fuzz_device import device, run_both
from vkchi.fields.field import MatrixField, ScalarField
from vkchi.ir.literal import type_named
from vkchi.runtime import current_runtime
from vkchi.target.caps import FULL
from vkchi.types import Array, Tensor, f32, i32
from vkchi.types.layout import KINDS, LayoutDigit

__all__ = ("device", "plain_functions", "small_machine")  # fixtures
PROGRAMS = 30


@dataclass(frozen=True)
class Toy:
    """Cells of `step` scalars; the common properties of layouts."""

    extents: tuple[int, ...]
    step: int
    components: tuple[int, ...]
    origin: tuple[int, ...] = ()
    number: ClassVar[None] = None

    @property
    def rank(self) -> int:
        return len(self.extents)

    def component(self, k: int) -> Toy:
        return replace(self, components=(0,))

    def text(self) -> str:
        parts = self.extents, (self.step,), self.components, self.origin
        words = ";".join(":".join(map(str, part)) for part in parts)
        return f"{type(self).__name__.lower()}({words})"


class Panels(Toy):
    @property
    def rows(self) -> int:
        return prod(self.extents[:-1])

    @property
    def size(self) -> int:
        return -(-self.extents[-1] // 2) * 2 * self.rows * self.step

    def offset(self, index: Sequence[Any]) -> Any:
        *others, last = index
        row = number_of(others, self.extents)
        return ((last // 2 * self.rows + row) * 2 + last % 2) * self.step

    def digits(self, shape: tuple[int, ...]) -> tuple[tuple[LayoutDigit, ...], ...]:
        found = []
        for k, extent in enumerate(shape[:-1]):
            found.append((LayoutDigit(extent, 2 * self.step * prod(shape[k + 1 : -1]), 1),))
        wide = LayoutDigit(-(-shape[-1] // 2), 2 * self.step * self.rows, 2)
        return (*found, (wide, LayoutDigit(2, self.step, 1)))


class Turned(Toy):
    @property
    def size(self) -> int:
        return prod(self.extents) * self.step

    def offset(self, index: Sequence[Any]) -> Any:
        *others, last = index
        row, columns = number_of(others, self.extents), self.extents[-1]
        return (row * columns + (last + row + 1) % columns) * self.step

    def digits(self, shape: tuple[int, ...]) -> None:
        return None


def number_of(index: Sequence[Any], extents: tuple[int, ...]) -> Any:
    """The number of an index in row-major order."""
    total: Any = 0
    for k, extent in zip(index, extents, strict=False):
        total = total * extent + k
    return total


def reader(make: type[Toy]) -> Any:
    """Reader of a layout's text."""

    def read(text: str, rank: int) -> Toy:
        parts = [tuple(int(k) for k in part.split(":") if k) for part in text.split(";")]
        extents, (step,), components, origin = parts
        return make(extents, step, components, origin)

    return read


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for make in (Panels, Turned):
        monkeypatch.setitem(KINDS, make.__name__.lower(), reader(make))


def place(make: type[Toy], elem: Any, shape: tuple[int, ...], origin: tuple[int, ...] = ()) -> Any:
    """A field that lies so, and a copy of another one as far as others know."""
    is_tensor = isinstance(elem, Tensor)
    made: Any = (MatrixField if is_tensor else ScalarField)(current_runtime(), elem)
    step = elem.size if is_tensor else 1
    made.arrange(shape, make(shape, step, tuple(range(step)), origin))
    made._allocate()
    made.is_copy = True
    return made


BOTH = pytest.mark.parametrize("make", [Panels, Turned])


@BOTH
def test_types_of_them_are_read_back(make: type[Toy]) -> None:
    layout = make((3, 4), 5, (0, 1, 2), (-1, 2))
    t = Array.of(Tensor.of(f32, (3,)), 2, (3, 4), layout)
    assert type_named(str(t)) is t
    with pytest.raises(ValueError, match="is not a layout"):
        type_named("array<f32[3] @spiral(3)>")


@BOTH
@pytest.mark.device
def test_python_and_kernels_find_the_same_elements(make: type[Toy]) -> None:
    ti.init()
    x, y = place(make, i32, (5, 6)), ti.field(ti.i32, (5, 6))

    @ti.kernel
    def number():
        for i, j in y:
            x[i, j] = 10 * i + j

    @ti.kernel
    def spread():
        for i, j in x:
            y[i, j] = x[i, j] + (x[i - 1, j] + x[i, j + 1] if i > 0 and j < 5 else 0)

    @ti.kernel
    def total() -> ti.i32:
        found = 0
        for i, j in x:
            found += x[i, j]
            ti.atomic_max(x[2, 3], 10 * i + j)
        return found

    number()
    want = 10 * np.arange(5)[:, None] + np.arange(6)
    np.testing.assert_array_equal(x.to_numpy(), want)
    assert x[4, 5] == 45 and x[0, 1] == 1
    memory = np.frombuffer(x.buffer.read(0, x.size_bytes), np.int32)
    assert memory[x.layout.offset((3, 2))] == 32
    spread()
    beside = np.where((np.arange(5)[:, None] > 0) & (np.arange(6) < 5), 1, 0)
    seen = want + beside * (np.roll(want, 1, 0) + np.roll(want, -1, 1))
    np.testing.assert_array_equal(y.to_numpy(), seen)
    x[4, 5] = 1000
    assert total() >= want.sum() - 45 + 1000 - 1
    assert x[2, 3] == 45
    x.from_numpy(want[::-1])
    np.testing.assert_array_equal(x.to_numpy(), want[::-1])
    x.fill(7)
    assert (x.to_numpy() == 7).all() and x[1, 1] == 7


@BOTH
@pytest.mark.device
def test_vectors_and_indices_that_begin_elsewhere(make: type[Toy]) -> None:
    ti.init()
    v = place(make, Tensor.of(f32, (3,)), (4, 5), (-2, 1))

    @ti.kernel
    def put():
        for i, j in v:
            v[i, j] = [i, j, i * j]

    @ti.kernel
    def stray(at: ti.i32):
        for k in range(3):
            v[at + k, 1] = [99.0, 99.0, 99.0]

    put()
    i, j = np.meshgrid(np.arange(-2, 2), np.arange(1, 6), indexing="ij")
    want = np.stack([i, j, i * j], -1)
    np.testing.assert_array_equal(v.to_numpy(), want)
    assert list(v[-2, 3]) == [-2, 3, -6]
    part = v.get_scalar_field(1)
    assert part[1, 5] == 5
    np.testing.assert_array_equal(part.to_numpy(), want[..., 1])
    stray(50)  # nothing of the array is touched
    np.testing.assert_array_equal(v.to_numpy(), want)
    v[0, 2][1] = -1
    assert v.to_numpy()[2, 1, 1] == -1


@pytest.mark.device
def test_dlpack_copies_layouts_without_strides() -> None:
    ti.init()
    x = place(Turned, i32, (3, 4))
    x.from_numpy(np.arange(12).reshape(3, 4))
    if x.is_reached:
        np.testing.assert_array_equal(np.from_dlpack(x), np.arange(12).reshape(3, 4))
    with pytest.raises(BufferError, match="steps|host"):
        x.__dlpack__(copy=False)


# --- random programs -----------------------------------------------------------------------------


@pytest.fixture
def own_layouts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Random programs have these layouts in place of those of field trees; all that were made."""
    made: list[Any] = []

    def layouts(size: int, extents: tuple[int, ...]) -> list[Any]:
        steps = (size, size + 2)
        found = [make(extents, n, tuple(range(size))) for n in steps for make in (Panels, Turned)]
        made.extend(found)
        return found

    monkeypatch.setattr("tests.fuzz.programs.tree_layouts", layouts)
    return made


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_passes_keep_random_programs(seed: int, own_layouts: list[Any]) -> None:
    test_fuzz.test_programs_are_valid_and_read_back(seed)
    test_fuzz.test_passes_keep_results(seed)
    test_fuzz.test_pipeline_keeps_results(seed, FULL)


@pytest.mark.device
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_the_device_runs_random_programs(device: Any, seed: int, own_layouts: list[Any]) -> None:
    for name, got, want in run_both(device, seed, EXACT if seed % 2 else ALL):
        near = {"rtol": 0.05, "atol": 0.05} if want.dtype.kind == "f" else {"rtol": 0, "atol": 0}
        np.testing.assert_allclose(got, want, **near, err_msg=f"seed {seed}: {name}")
