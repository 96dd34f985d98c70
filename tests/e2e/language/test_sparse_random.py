"""Random trees of sparse blocks: whatever the nesting, values, active cells and lists are those of
a model in numpy.

Each seed makes a tree of random kinds of blocks, with fields at random nodes, and writes, appends
and deactivates at random. The model knows of each block which cells are active, or how long lists
are, in an array of its own shape.
"""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

KINDS = ["dense", "pointer", "bitmasked", "hash", "dynamic"]
MOST_ELEMENTS = 600


class Node:
    """A block or a field, with its expected contents: 1 for cells that are active, or numbers."""

    def __init__(self, made: Any, kind: str, extents: dict[int, int], above: "Node | None") -> None:
        self.made, self.kind, self.above = made, kind, above
        self.extents = dict(sorted(extents.items()))
        self.held = np.zeros(tuple(self.extents.values()), np.int32)
        self.origin = np.zeros(len(extents), np.int32)

    @property
    def path(self) -> list["Node"]:
        """The sparse blocks down to the node."""
        above = self.above.path if self.above else []
        return above if self.kind in ("dense", "place") else [*above, self]

    def part(self, of: "Node", index: Any) -> tuple[Any, ...]:
        """Part of the node in an element of a node above, or the reverse."""
        at = dict(zip(of.extents, index, strict=True))
        found = []
        for axis, n in self.extents.items():
            size = n // of.extents.get(axis, 1)
            k = at.get(axis)
            found.append(slice(None) if k is None else slice(k * size, (k + 1) * size))
        return tuple(found)

    def cell(self, of: "Node", index: Any) -> tuple[int, ...]:
        """Position of a node's element in the node above it."""
        at = dict(zip(of.extents, index, strict=True))
        return tuple(int(at[a]) // (of.extents[a] // n) for a, n in self.extents.items())

    def mark(self, index: Any) -> None:
        """An element is written: its cells are active, and all of a list before it."""
        for block in self.path:
            cell = block.cell(self, index)
            if block.kind == "dynamic":
                k = block.along
                cell = (*cell[:k], slice(cell[k] + 1), *cell[k + 1 :])
            block.held[cell] = 1

    @property
    def along(self) -> int:
        """The axis of a list."""
        (axis,) = set(self.extents) - set(self.above.extents if self.above else {})
        return list(self.extents).index(axis)

    @property
    def active(self) -> Any:
        """Elements that a loop visits, by shape."""
        if not self.path:
            return np.ones_like(self.held)
        block, found = self.path[-1], self.held * 0
        for cell in np.argwhere(block.held):
            found[self.part(block, cell)] = 1
        return found


class Tree:
    """A random tree of blocks and fields of i32."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.blocks: list[Node] = []
        self.fields: list[Node] = []
        self.grow(ti.root, None, {}, int(self.rng.integers(2, 5)))

    def grow(self, made: Any, above: Node | None, extents: dict[int, int], depth: int) -> None:
        """Put blocks and fields into a block."""
        for _ in range(self.rng.integers(1, 3) if depth else 0):
            kind = str(self.rng.choice(KINDS))
            free = [k for k in range(4) if k not in extents or kind != "dynamic"]
            size = 1 if kind == "dynamic" else self.rng.integers(1, 3)
            axes = sorted(self.rng.choice(free, min(size, len(free)), replace=False).tolist())
            dims = self.rng.integers(1, 5, len(axes)).tolist()
            new = extents | {a: extents.get(a, 1) * n for a, n in zip(axes, dims, strict=True)}
            if not axes or np.prod(list(new.values())) > MOST_ELEMENTS:
                continue
            block = Node(getattr(made, kind)(ti.axes(*axes), dims), kind, new, above)
            self.blocks.append(block)
            self.grow(block.made, block, new, depth - 1)
        if above is not None:
            for _ in range(self.rng.integers(0 if depth else 1, 3)):
                field = Node(ti.field(ti.i32), "place", extents, above)
                field.origin = self.rng.integers(-3, 4, len(extents)).astype(np.int32)
                made.place(field.made, offset=field.origin.tolist())
                self.fields.append(field)

    def write(self, field: Node) -> None:
        """Add to random elements."""
        x, d, n = field.made, len(field.extents), 4
        at = np.array(
            [[self.rng.integers(k) for k in field.held.shape] for _ in range(n)], np.int32
        )

        @ti.kernel
        def add(at: ti.types.ndarray(ti.types.vector(d, ti.i32), 1)):
            for k in at:
                x[at[k]] += k + 1

        add(at + field.origin)
        for k, index in enumerate(at):
            field.held[tuple(index)] += k + 1
            field.mark(index)

    def append(self, field: Node) -> None:
        """Put 7 behind a random list, if there is room."""
        x, along, items = field.made, field.above.along, field.above.held
        cell: list[Any] = [int(self.rng.integers(n)) for n in field.held.shape]
        at = (cell + field.origin).tolist()
        del at[along]

        @ti.kernel
        def put():
            if ti.static(len(at) > 0):
                x[ti.static(at)].append(7)
            else:
                x.append(7)

        put()
        cell[along] = slice(None)
        cell[along] = int(items[tuple(cell)].sum())
        if cell[along] < items.shape[along]:
            field.held[tuple(cell)] = 7
            field.mark(cell)

    def deactivate(self, block: Node) -> None:
        """Clear a random cell, or a list."""
        of = (block.above or Node(None, "dense", {}, None)) if block.kind == "dynamic" else block
        made, cell = block.made, [int(self.rng.integers(k)) for k in of.extents.values()]

        @ti.kernel
        def clear():
            ti.deactivate(made, ti.static(cell))

        clear()
        for node in [*self.fields, *self.blocks]:
            if block in node.path:
                node.held[node.part(of, cell)] = 0

    def check(self) -> None:
        for field in self.fields:
            assert field.made.to_numpy().tolist() == field.held.tolist()
        for node in [*self.fields, *self.blocks]:
            found, made, first = np.zeros_like(node.held), node.made, node.origin.tolist()

            @ti.kernel
            def visit(found: ti.types.ndarray(ti.i32, node.held.ndim)):
                for I in ti.grouped(made):  # noqa: E741, B023
                    found[I - ti.Vector(first)] += 1  # noqa: B023

            visit(found)
            assert found.tolist() == node.active.tolist(), node.path


@pytest.mark.parametrize("seed", range(4))
def test_a_random_tree(seed: int) -> None:
    tree = Tree(seed)
    for _ in range(2):
        for field in tree.fields:
            tree.write(field)
            if field.above.kind == "dynamic":
                tree.append(field)
        tree.check()
        for block in tree.blocks:
            if block.kind != "dense":
                tree.deactivate(block)
        tree.check()
