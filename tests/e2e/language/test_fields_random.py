"""Random field trees: in every layout, fields equal numpy arrays of their shapes.

Each seed makes a tree of random depth, axes, extents and branches, with fields of random types at
random nodes, and passes random contents through Python and kernels.
"""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

DTYPES = ["u8", "i16", "i32", "u32", "f32"]
MOST_ELEMENTS = 3000


class Tree:
    """A random tree; `fields` are its fields with the numpy arrays they should equal."""

    def __init__(self, seed: int, lacks: Any) -> None:
        self.dtypes = [getattr(ti, name) for name in DTYPES if not lacks(name)]
        self.rng = np.random.default_rng(seed)
        self.fields: list[tuple[Any, Any]] = []
        for _ in range(self.rng.integers(1, 3)):
            self.grow(self.block(ti.root, {}), {}, 3)

    def pick(self, low: int, high: int) -> int:
        """A random number from low to high - 1."""
        return int(self.rng.integers(low, high))

    def block(self, parent: Any, extents: dict[int, int]) -> tuple[Any, dict[int, int]]:
        """A random block under a parent, and its extents by axis."""
        axes = sorted(self.rng.choice(4, self.pick(1, 4), replace=False).tolist())
        dims = [self.pick(1, 6) for _ in axes]
        extents = dict(extents)
        for axis, n in zip(axes, dims, strict=True):
            extents[axis] = extents.get(axis, 1) * n
        if np.prod(list(extents.values())) > MOST_ELEMENTS:
            return None, {}
        return parent.dense(ti.axes(*axes), dims), extents

    def grow(self, made: Any, _: Any, depth: int) -> None:
        """Put random fields and blocks into a block."""
        block, extents = made
        shape = tuple(extents[axis] for axis in sorted(extents))
        children = self.pick(0, 3) if depth else 0
        fields_before = self.pick(0, 3) if children else self.pick(1, 3)
        for _ in range(fields_before):
            self.place(block, shape)
        for _ in range(children):
            child = self.block(block, extents)
            if child[0] is None:
                self.place(block, shape)
            else:
                self.grow(child, None, depth - 1)
        if self.pick(0, 3) == 0:
            self.place(block, shape)

    def place(self, block: Any, shape: tuple[int, ...]) -> None:
        """Place a random field in a block."""
        dtype = self.dtypes[self.pick(0, len(self.dtypes))]
        offset = None
        if self.pick(0, 3) == 0:
            offset = tuple(self.pick(-9, 10) for _ in shape)
        inner: tuple[int, ...] = [(), (), (2,), (3,), (2, 2)][self.pick(0, 5)]
        if not inner:
            x = ti.field(dtype)
        elif len(inner) == 1:
            x = ti.Vector.field(*inner, dtype)
        else:
            x = ti.Matrix.field(*inner, dtype)
        block.place(x, offset=offset)
        self.fields.append((x, np.zeros(shape + inner)))

    def contents(self, array: Any) -> Any:
        """Random numbers that every type holds."""
        return self.rng.integers(0, 100, array.shape)


@ti.kernel
def double(x: ti.template()):
    for I in ti.grouped(x):
        x[I] += x[I]


@pytest.mark.parametrize("seed", range(24))
def test_random_tree_matches_numpy(seed: int, lacks: Any) -> None:
    tree = Tree(seed, lacks)
    for k, (x, want) in enumerate(tree.fields):
        want[...] = tree.contents(want)
        x.from_numpy(want.astype(x.to_numpy().dtype))
        if k % 3 == 0:
            double(x)
            want *= 2
    for x, want in tree.fields:
        assert x.shape == want.shape[: len(x.shape)]
        np.testing.assert_array_equal(x.to_numpy(), want)


@ti.kernel
def accumulate(x: ti.template(), total: ti.template()):
    for I in ti.grouped(x):
        total[None] += ti.cast(x[I], ti.i32)


@pytest.mark.parametrize("seed", range(100, 112))
def test_kernel_reads_and_python_reads(seed: int, lacks: Any) -> None:
    tree = Tree(seed, lacks)
    scalars = [(x, want) for x, want in tree.fields if x.shape == want.shape]
    total = ti.field(ti.i32, shape=())
    for x, want in scalars[:2]:
        want[...] = tree.contents(want)
        x.from_numpy(want.astype(x.to_numpy().dtype))
        total[None] = 0
        accumulate(x, total)
        assert total[None] == want.sum()
    for x, want in scalars[2:]:
        x.fill(5)
        want[...] = 5
    for x, want in scalars:
        np.testing.assert_array_equal(x.to_numpy(), want)
