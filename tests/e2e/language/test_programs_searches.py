"""Whole programs that search: with stacks in vectors, functions as arguments, grids and trees.

Results are compared with numpy's.
"""

import numpy as np

import vkchi as ti
from tests.e2e.language.compare import check

N = 16


@ti.data_oriented
class Cells:
    """Points sorted into cells, whose neighbours a task is done for."""

    def __init__(self, points, size):
        self.size, self.n = size, len(points)
        self.x = ti.Vector.field(2, ti.f32, self.n)
        self.count = ti.field(ti.i32, (8, 8))
        self.members = ti.field(ti.i32, (8, 8, self.n))
        self.x.from_numpy(points)

    @ti.func
    def cell(self, p):
        return ti.cast(p / self.size, ti.i32)

    @ti.kernel
    def sort(self):
        for i in self.x:
            c = self.cell(self.x[i])
            self.members[c, ti.atomic_add(self.count[c], 1)] = i

    @ti.func
    def for_neighbours(self, i, task: ti.template(), result: ti.template()):
        c = self.cell(self.x[i])
        for offset in ti.grouped(ti.ndrange(*((-1, 2),) * 2)):
            d = c + offset
            if 0 <= d.x < 8 and 0 <= d.y < 8:
                for k in range(self.count[d]):
                    j = self.members[d, k]
                    if j != i and (self.x[i] - self.x[j]).norm() < self.size:
                        task(i, j, result)


@ti.data_oriented
class Counted:
    def __init__(self, cells):
        self.cells, self.found = cells, ti.field(ti.i32, cells.n)

    @ti.func
    def one_more(self, i, j, result: ti.template()):
        result += 1 + 100 * (j > i)

    @ti.kernel
    def count(self):
        for i in self.found:
            n = 0
            self.cells.for_neighbours(i, self.one_more, n)
            self.found[i] = n


def test_neighbours_by_a_task_that_is_a_method() -> None:
    points = np.random.RandomState(3).rand(40, 2).astype(np.float32)
    cells = Cells(points, 0.13)
    counted = Counted(cells)
    cells.sort()
    counted.count()
    near = np.linalg.norm(points[:, None] - points[None], axis=-1) < 0.13
    np.fill_diagonal(near, False)
    above = np.triu(near, 1)
    check(counted.found, (near.sum(1) + 100 * above.sum(1)).tolist())


def test_a_tree_is_walked_with_a_stack_in_a_vector() -> None:
    Node = ti.types.struct(low=ti.i32, high=ti.i32, left=ti.i32, right=ti.i32)
    nodes = Node.field(shape=2 * N)
    found = ti.field(ti.i32, (N, 2))

    @ti.kernel
    def walk():
        for q in range(N):
            stack, sp = ti.Vector([0] * 8), 1
            while sp > 0:
                sp -= 1
                node = nodes[stack[sp]]
                found[q, 1] += 1
                if not node.low <= q < node.high:
                    continue
                if node.left < 0:
                    found[q, 0] += node.low
                    break
                stack[sp], stack[sp + 1] = node.left, node.right
                sp += 2

    made = []

    def build(low, high):
        me = len(made)
        made.append(None)
        mid = (low + high) // 2
        children = (-1, -1) if high - low == 1 else (build(low, mid), build(mid, high))
        made[me] = (low, high, *children)
        return me

    build(0, N)
    for k, (low, high, left, right) in enumerate(made):
        nodes[k] = Node(low=low, high=high, left=left, right=right)
    walk()
    got = found.to_numpy()
    assert got[:, 0].tolist() == list(range(N)) and got[:, 1].tolist()[-1] == 5


def test_the_nearest_seed_by_jumps() -> None:
    seeds = [(1, 2), (13, 4), (6, 11), (15, 15)]
    a, b = [ti.Vector.field(2, ti.i32, (N, N)) for _ in range(2)]
    far = ti.field(ti.i32, (N, N))

    @ti.kernel
    def step(k: ti.i32, src: ti.template(), dst: ti.template()):
        for I in ti.grouped(src):
            best, least = src[I], 1 << 20
            if best.x >= 0:
                least = (I - best).dot(I - best)
            for d in ti.static(ti.grouped(ti.ndrange((-1, 2), (-1, 2)))):
                J = I + d * k
                if (J >= 0).all() and (J < N).all():
                    s = src[J]
                    if s.x >= 0 and (I - s).dot(I - s) < least:
                        least, best = (I - s).dot(I - s), s
            dst[I], far[I] = best, least

    a.fill(-1)
    for seed in seeds:
        a[seed] = seed
    for k in (8, 4, 2, 1, 1):
        step(k, a, b)
        a, b = b, a
    at = np.stack(np.meshgrid(np.arange(N), np.arange(N), indexing="ij"), -1)
    want = min_over([((at - np.array(s)) ** 2).sum(-1) for s in seeds])
    check(far, want)


def min_over(arrays):
    return np.minimum.reduce(arrays).tolist()


def test_parts_that_hang_together_by_union_and_find() -> None:
    image = (np.add.outer(5 * np.arange(N), 3 * np.arange(N)) % 7 < 3).astype(np.int32)
    cells, parent = ti.field(ti.i32, (N, N)), ti.field(ti.i32, N * N)
    cells.from_numpy(image)

    @ti.func
    def find(x):
        while parent[x] != x:
            x = parent[x]
        return x

    @ti.kernel
    def count() -> ti.i32:
        for k in parent:
            parent[k] = k
        ti.loop_config(serialize=True)
        for k in range(N * N):
            i, j = k // N, k % N
            for di, dj in ti.static([(1, 0), (0, 1)]):
                if i >= di and j >= dj and cells[i, j] == cells[i - di, j - dj]:
                    p, q = find(k), find(k - di * N - dj)
                    parent[ti.max(p, q)] = ti.min(p, q)
        parts = 0
        for k in parent:
            parts += parent[k] == k
        return parts

    label = np.arange(N * N).reshape(N, N)
    after, before = slice(1, None), slice(None, -1)
    for _ in range(N * N):  # the least number spreads to neighbours alike
        old = label.copy()
        for axis in (0, 1):
            for there, here in ((after, before), (before, after)):
                s, t = [slice(None)] * 2, [slice(None)] * 2
                s[axis], t[axis] = there, here
                same = image[tuple(s)] == image[tuple(t)]
                least = np.minimum(label[tuple(s)], label[tuple(t)])
                label[tuple(t)] = np.where(same, least, label[tuple(t)])
        if (old == label).all():
            break
    assert count() == len(np.unique(label))
