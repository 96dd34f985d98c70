"""Random programs about sparse trees, and their reference: dictionaries of active cells and values.

    tree = Tree(random.Random(seed))        # a vkchi tree and its model, kept equal
    tree.run(12)                            # 12 random operations; AssertionError if they differ

The model has a set of active cells per sparse block, a length per list, and a value per element
that was written. Iterations of the kernels are independent, or commute, so their order is
irrelevant.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import vkchi as ti

Index = tuple[int, ...]
MASKED = ("pointer", "bitmasked", "hash")
MOST_ELEMENTS = 4096
AXES = {1: [ti.i], 2: [ti.ij, ti.i, ti.j], 3: [ti.ijk, ti.ij, ti.k]}


class Level:
    """The model of one sparse block: `active` cells; for a dynamic block, `lengths` of its lists.

    `cell(index)` is the cell, or the list, that contains the element at an index without offset.
    """

    def __init__(self, block: Any, leaf: dict[int, int]) -> None:
        self.block, self.is_list = block, block.kind == "dynamic"
        self.axes = list(leaf)
        own = block.above.extents if self.is_list else block.extents
        self.extents = tuple(own.values())
        self.steps = [(self.axes.index(axis), leaf[axis] // n) for axis, n in own.items()]
        self.active: set[Index] = set()
        self.lengths: dict[Index, int] = {}
        if self.is_list:
            ((axis, self.room),) = block.cells
            self.at = self.axes.index(axis)

    def cell(self, index: Index) -> Index:
        return tuple([index[at] // n for at, n in self.steps])

    def activate(self, index: Index) -> None:
        cell = self.cell(index)
        if self.is_list:
            self.lengths[cell] = max(self.lengths.get(cell, 0), index[self.at] % self.room + 1)
        else:
            self.active.add(cell)

    def has(self, index: Index) -> bool:
        cell = self.cell(index)
        if self.is_list:
            return index[self.at] % self.room < self.lengths.get(cell, 0)
        return cell in self.active

    def forget(self, is_inside: Callable[[Index], bool]) -> None:
        """Deactivate the cells, or empty the lists, of these cells."""
        self.active = {cell for cell in self.active if not is_inside(cell)}
        self.lengths = {cell: n for cell, n in self.lengths.items() if not is_inside(cell)}


class Tree:
    """A random tree of two i32 fields `x` and `y` in one node, and its model."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        ndim = draw.choice([1, 1, 2, 2, 3])
        self.x, self.y = ti.field(ti.i32), ti.field(ti.i32)
        node, blocks, self.text = ti.root, [], "root"
        elements = 1
        for kind in self._kinds():
            if kind == "dynamic":
                axis, n = ti.axes(ndim), draw.choice([1, 3, 4])
                node = node.dynamic(axis, n)
            else:
                last = not blocks and kind != "dense"
                axis = AXES[ndim][0] if last else draw.choice(AXES[ndim])
                n = tuple(draw.choice([1, 2, 3, 4, 8]) for _ in axis)
                node = getattr(node, kind)(axis, n)
            blocks.append(node)
            self.text += f".{kind}({axis}, {n})"
            elements = int(np.prod(node.shape))
            if elements > MOST_ELEMENTS // 8:
                break
        self.offset = tuple(draw.choice([0, 0, -5, 7]) for _ in node.shape)
        node.place(self.x, self.y, offset=self.offset)
        self.text += f".place(x, y, offset={self.offset})"
        self.shape, leaf = node.shape, node.extents
        self.levels = [Level(block, leaf) for block in blocks if block.kind in (*MASKED, "dynamic")]
        self.values: dict[str, dict[Index, int]] = {"x": {}, "y": {}}
        self.log: list[str] = []
        self.kernels: dict[Any, Any] = {}

    def _kinds(self) -> list[str]:
        draw = self.draw
        kinds = [draw.choice([*MASKED, "pointer", "dense"])]
        kinds += [draw.choice([*MASKED, "dense", "dense"]) for _ in range(draw.randrange(3))]
        if draw.random() < 0.3:
            kinds.append("dynamic")
        elif kinds == ["dense"] * len(kinds):
            kinds[0] = "pointer"
        return kinds

    # --- the model ---------------------------------------------------------------------------

    def indices(self) -> Iterator[Index]:
        return itertools.product(*map(range, self.shape))

    def loop(self) -> list[Index]:
        """Active elements, in row-major order."""
        return [k for k in self.indices() if self.levels[-1].has(k)] if self.levels else []

    def get(self, name: str, index: Index) -> int:
        return self.values[name].get(index, 0)

    def put(self, name: str, index: Index, value: int) -> None:
        for level in self.levels:
            level.activate(index)
        self.values[name][index] = value

    def drop(self, level: Level, cell: Index) -> None:
        """Deactivate a cell: its elements become zero, and blocks in it inactive."""
        inside = [k for k in self.indices() if level.cell(k) == cell]
        for values in self.values.values():
            for k in inside:
                values.pop(k, None)
        at = self.levels.index(level)
        for inner in self.levels[at:]:
            gone = {cell} if inner is level else {inner.cell(k) for k in inside}
            inner.forget(gone.__contains__)

    # --- operations: each changes the tree and the model -------------------------------------

    def run(self, operations: int) -> None:
        """Run random operations, and compare after each."""
        names = [name for name in dir(self) if name.startswith("do_")]
        for _ in range(operations):
            name = self.draw.choice(names)
            self.log.append(name)
            getattr(self, name)()
            self.compare()

    def some(self, most: int = 6) -> list[Index]:
        """A few distinct elements."""
        found = {tuple(self.draw.randrange(n) for n in self.shape) for _ in range(most)}
        return sorted(found)[: self.draw.randrange(1, most)]

    def kernel(self, make: Callable[..., Any], *key: Any) -> Any:
        name = (make, *key)
        if name not in self.kernels:
            self.kernels[name] = make(self.x, self.y, self.offset, *key)
        return self.kernels[name]

    def given(self, where: list[Index], *, is_cell: bool = False) -> np.ndarray[Any, Any]:
        first = (0,) * len(where[0]) if is_cell else self.offset
        return np.array(where, np.int32).reshape(len(where), -1) + np.array(first, np.int32)

    def do_write(self) -> None:
        where, factor = self.some(), self.draw.randrange(1, 9)
        self.kernel(writing)(self.given(where), factor)
        for n, k in enumerate(where):
            self.put("x", k, factor + n)

    def do_add(self) -> None:
        where, factor = self.some(), self.draw.randrange(1, 9)
        self.kernel(adding)(self.given(where), factor)
        for k in where:
            self.put("y", k, self.get("y", k) + factor)

    def do_write_from_python(self) -> None:
        for k in self.some(3):
            self.x[tuple(np.add(k, self.offset).tolist())] = 5
            self.put("x", k, 5)

    def do_activate(self) -> None:
        level = self.draw.choice(self.levels)
        if level.is_list:
            return
        where = sorted({level.cell(k) for k in self.some()})
        self.kernel(activating, level.block, len(level.extents))(self.given(where, is_cell=True))
        for k in where:
            first = tuple(k[list(level.block.extents).index(a)] * (
                dict(zip(level.axes, self.shape))[a] // level.block.extents[a]
            ) if a in level.block.extents else 0 for a in level.axes)  # fmt: skip
            for outer in self.levels[: self.levels.index(level) + 1]:
                outer.activate(first)

    def do_deactivate(self) -> None:
        level = self.draw.choice(self.levels)
        where = sorted({level.cell(k) for k in self.some(4)})
        self.kernel(deactivating, level.block, len(level.extents))(self.given(where, is_cell=True))
        for cell in where:
            self.drop(level, cell)

    def do_deactivate_own(self) -> None:
        level = self.draw.choice(self.levels)
        if level.is_list or not level.extents:
            return
        self.kernel(shrinking, level.block)()
        for cell in sorted(level.active):
            if sum(cell) % 2 == 1:
                self.drop(level, cell)

    def do_deactivate_all(self) -> None:
        if self.draw.random() < 0.5:
            return
        level = self.draw.choice(self.levels)
        level.block.deactivate_all()
        for cell in itertools.product(*map(range, level.extents)):
            self.drop(level, cell)

    def do_append(self) -> None:
        level = self.levels[-1]
        if not level.is_list:
            return
        where = [level.cell(k) for k in self.some()]
        self.kernel(appending, level.block, len(level.extents))(self.given(where, is_cell=True), 3)
        for n, cell in enumerate(where):
            length = level.lengths.get(cell, 0)
            if length < level.room:
                index = list(self.element_of(level, cell))
                index[level.at] += length
                self.put("x", tuple(index), 3 + n)
                self.values["y"][tuple(index)] = 3 - n
            else:
                for outer in self.levels[:-1]:
                    outer.activate(self.element_of(level, cell))

    def element_of(self, level: Level, cell: Index) -> Index:
        return next(k for k in self.indices() if level.cell(k) == cell)

    def do_own_update(self) -> None:
        self.kernel(updating)()
        for k in self.loop():
            self.put("x", k, (3 * self.get("x", k) + 1 + k[0]) % 97)

    def do_stencil(self) -> None:
        self.kernel(stencil, self.shape[0])()
        for k in self.loop():
            left = self.get("x", (k[0] - 1, *k[1:])) if k[0] > 0 else 0
            self.put("y", k, (self.get("y", k) + left + self.get("x", k)) % 89)

    def do_grow(self) -> None:
        step = self.draw.choice([1, 2, self.shape[0] // 2])
        self.kernel(growing, self.shape[0])(step)
        for k in self.loop():
            if k[0] + step < self.shape[0]:
                to = (k[0] + step, *k[1:])
                self.put("y", to, self.get("y", to) + 1)

    def do_write_and_loop(self) -> None:
        where = self.some()
        self.kernel(writing_and_updating)(self.given(where), 4)
        for n, k in enumerate(where):
            self.put("x", k, 4 + n)
        for k in self.loop():
            self.put("x", k, (2 * self.get("x", k) + 1) % 83)
            self.put("y", k, (self.get("y", k) + self.get("x", k)) % 83)

    def do_spread(self) -> None:
        """Activation of the own block in two loops of one kernel."""
        step = self.draw.choice([1, self.shape[-1] // 2])
        self.kernel(spreading, self.shape[-1])(step)
        for name in ("x", "y"):
            for k in self.loop():
                to = (*k[:-1], k[-1] - step)
                if to[-1] >= 0:
                    self.put(name, to, self.get(name, to) + 1)

    def do_deactivate_in_loop(self) -> None:
        """Deactivation of the own cell in a loop over the elements, then a loop over the rest."""
        level = self.levels[-1]
        if level.is_list or not level.extents:
            return
        self.kernel(pruning, level.block)()
        for cell in sorted(level.active):
            if sum(cell) % 2 == 0:
                self.drop(level, cell)
        for k in self.loop():
            self.put("y", k, self.get("y", k) + 3)

    def do_append_in_loop(self) -> None:
        """Append to the own list in a loop over its items."""
        level = self.levels[-1]
        if not level.is_list or any(self.offset):
            return
        self.kernel(multiplying, level.block, tuple(level.steps))(7)
        for k in self.loop():
            cell = level.cell(k)
            if level.lengths[cell] < level.room and k[level.at] % level.room == 0:
                index = list(k)
                index[level.at] += level.lengths[cell]
                self.put("x", tuple(index), 7)
                self.values["y"][tuple(index)] = 8

    def do_draw(self) -> None:
        """Random numbers below 1."""
        self.kernel(drawing)()
        for k in self.loop():
            self.put("y", k, 5)

    def do_copy(self) -> None:
        z, w = self.draw.sample(["x", "y"], 2)
        getattr(self, z).copy_from(getattr(self, w))
        for k in self.loop():
            self.values[z][k] = self.get(w, k)

    def do_recorded(self) -> None:
        """A graph whose first kernel may activate cells, and whose second loops over them."""
        where = self.some()
        at = ti.ndarray(ti.i32, (len(where), len(self.shape)))
        at.from_numpy(self.given(where))
        with ti.record() as recorded:
            self.kernel(writing)(at, 2)
            self.kernel(updating)()
        for level in self.levels[:1]:
            level.block.deactivate_all()
            for cell in itertools.product(*map(range, level.extents)):
                self.drop(level, cell)
        times = self.draw.randrange(1, 4)
        for _ in range(times):
            recorded.run()
            for n, k in enumerate(where):
                self.put("x", k, 2 + n)
            for k in self.loop():
                self.put("x", k, (3 * self.get("x", k) + 1 + k[0]) % 97)

    # --- comparison --------------------------------------------------------------------------

    def compare(self) -> None:
        for name, field in (("x", self.x), ("y", self.y)):
            want = np.zeros(self.shape, np.int32)
            for k, value in self.values[name].items():
                want[k] = value
            assert (field.to_numpy() == want).all(), self.message(f"values of {name}")
        seen = np.zeros(self.shape, np.int32)
        want = np.zeros(self.shape, np.int32)
        for k in self.loop():
            want[k] = 1
        self.kernel(visiting)(seen)
        assert (seen == want).all(), self.message("elements of a parallel loop")
        order = np.full(int(np.prod(self.shape)) + 1, -1, np.int32)
        self.kernel(walking, self.shape)(order)
        found = [int(np.ravel_multi_index(k, self.shape)) for k in self.loop()]
        assert order[: len(found) + 1].tolist() == [*found, -1], self.message("a serial loop")
        for level in self.levels:
            if level.extents:
                got = np.zeros(level.extents, np.int32)
                self.kernel(asking, level.block)(got)
                cells = level.lengths if level.is_list else dict.fromkeys(level.active, 1)
                expected = np.zeros(level.extents, np.int32)
                for cell, n in cells.items():
                    expected[cell] = n
                assert (got == expected).all(), self.message(f"activity of {level.block.kind}")

    def message(self, what: str) -> str:
        return f"{what} differ: {self.text}: {', '.join(self.log)}"


# --- kernels -------------------------------------------------------------------------------------

Points = ti.types.ndarray(ti.i32, 2)


def writing(x: Any, y: Any, first: Index) -> Any:
    @ti.kernel
    def write(at: Points, v: ti.i32):
        for n in range(at.shape[0]):
            x[[at[n, k] for k in ti.static(range(len(first)))]] = v + n

    return write


def adding(x: Any, y: Any, first: Index) -> Any:
    @ti.kernel
    def add(at: Points, v: ti.i32):
        for n in range(at.shape[0]):
            y[[at[n, k] for k in ti.static(range(len(first)))]] += v

    return add


def activating(x: Any, y: Any, first: Index, block: Any, ndim: int) -> Any:
    @ti.kernel
    def activate(at: Points):
        for n in range(at.shape[0]):
            ti.activate(block, [at[n, k] for k in ti.static(range(ndim))])

    return activate


def deactivating(x: Any, y: Any, first: Index, block: Any, ndim: int) -> Any:
    @ti.kernel
    def deactivate(at: Points):
        for n in range(at.shape[0]):
            ti.deactivate(block, [at[n, k] for k in ti.static(range(ndim))])

    return deactivate


def shrinking(x: Any, y: Any, first: Index, block: Any) -> Any:
    @ti.kernel
    def shrink():
        for cell in ti.grouped(block):
            if cell.sum() % 2 == 1:
                ti.deactivate(block, cell)

    return shrink


def appending(x: Any, y: Any, first: Index, block: Any, ndim: int) -> Any:
    @ti.kernel
    def append(at: Points, v: ti.i32):
        for _ in range(1):
            for n in range(at.shape[0]):
                ti.append(block, [at[n, k] for k in ti.static(range(ndim))], [v + n, v - n])

    return append


def updating(x: Any, y: Any, first: Index) -> Any:
    @ti.kernel
    def update():
        for at in ti.grouped(x):
            x[at] = (3 * x[at] + 1 + at[0] - first[0]) % 97

    return update


def stencil(x: Any, y: Any, first: Index, n: int) -> Any:
    @ti.kernel
    def apply():
        for at in ti.grouped(x):
            left = 0
            if at[0] > first[0]:
                to = at
                to[0] -= 1
                left = x[to]
            y[at] = (y[at] + left + x[at]) % 89

    return apply


def growing(x: Any, y: Any, first: Index, n: int) -> Any:
    @ti.kernel
    def grow(step: ti.i32):
        for at in ti.grouped(y):
            if at[0] + step < n + first[0]:
                to = at
                to[0] += step
                y[to] += 1

    return grow


def writing_and_updating(x: Any, y: Any, first: Index) -> Any:
    @ti.kernel
    def run(at: Points, v: ti.i32):
        for n in range(at.shape[0]):
            x[[at[n, k] for k in ti.static(range(len(first)))]] = v + n
        for own in ti.grouped(x):
            x[own] = (2 * x[own] + 1) % 83
        for own in ti.grouped(x):
            y[own] = (y[own] + x[own]) % 83

    return run


def spreading(x: Any, y: Any, first: Index, n: int) -> Any:
    @ti.kernel
    def spread(step: ti.i32):
        for at in ti.grouped(x):
            to = at
            to[len(first) - 1] -= step
            if to[len(first) - 1] >= first[-1]:
                x[to] += 1
        for at in ti.grouped(y):
            to = at
            to[len(first) - 1] -= step
            if to[len(first) - 1] >= first[-1]:
                y[to] += 1

    return spread


def pruning(x: Any, y: Any, first: Index, block: Any) -> Any:
    @ti.kernel
    def prune():
        for cell in ti.grouped(block):
            if cell.sum() % 2 == 0:
                ti.deactivate(block, cell)
        for at in ti.grouped(y):
            y[at] += 3

    return prune


def multiplying(x: Any, y: Any, first: Index, block: Any, steps: Any) -> Any:
    @ti.kernel
    def multiply(v: ti.i32):
        for at in ti.grouped(x):
            if at[ti.static(len(first) - 1)] % ti.static(block.cells[0][1]) == 0:
                ti.append(block, [at[k] // n for k, n in ti.static(steps)], [v, v + 1])

    return multiply


def drawing(x: Any, y: Any, first: Index) -> Any:
    @ti.kernel
    def draw():
        for at in ti.grouped(y):
            y[at] = 5 + ti.cast(ti.random() * ti.random(), ti.i32)

    return draw


def visiting(x: Any, y: Any, first: Index) -> Any:
    @ti.kernel
    def visit(seen: ti.types.ndarray(ti.i32)):
        for at in ti.grouped(x):
            seen[at - ti.Vector(first)] += 1

    return visit


def walking(x: Any, y: Any, first: Index, shape: Index) -> Any:
    @ti.kernel
    def walk(order: ti.types.ndarray(ti.i32, 1)):
        n = 0
        for _ in range(1):
            for at in ti.grouped(x):
                number = 0
                for k in ti.static(range(len(shape))):
                    number = number * shape[k] + at[k] - first[k]
                order[n] = number
                n += 1

    return walk


def asking(x: Any, y: Any, first: Index, block: Any) -> Any:
    @ti.kernel
    def ask(got: ti.types.ndarray(ti.i32)):
        for at in ti.grouped(got):
            if ti.static(block.kind == "dynamic"):
                got[at] = ti.length(block, at)
            else:
                got[at] = ti.is_active(block, at)

    return ask
