"""Bounding volume hierarchy: a balanced binary tree over boxes or triangles in Morton order.

Node k has the children 2 k and 2 k + 1; the root is 1. The last level has a power of two of leaves,
those beyond the number of primitives with empty boxes. Traversals need no stack: the bits of
`pending` mark the levels at which the sibling of the path's node is still to be visited.

Sources: Lauterbach et al., "Fast BVH construction on GPUs", 2009 (Morton order); Áfra and
Szirmay-Kalos, "Stackless multi-BVH traversal for CPU, MIC and GPU ray tracing", 2014.

    bvh = BVH(vertices=x, triangles=faces)
    index, t = bvh.ray_cast(origin, direction)      # in a kernel
"""

from __future__ import annotations

from typing import Any

from vkchi.algorithms.array_kernels import check_array, library_func, on_arrays
from vkchi.algorithms.radix_sort import PairSort
from vkchi.errors import ArgumentError
from vkchi.fields.constructors import field, vector_field
from vkchi.fields.field import Field
from vkchi.fields.storage import Storage
from vkchi.lang.compile_time import static
from vkchi.lang.elementwise import abs, max, min, select
from vkchi.lang.math import clamp, clz, inf, isinf, isnan, popcnt
from vkchi.lang.matrix import Vector
from vkchi.ndarray import ndarray
from vkchi.spatial.triangles import closest_weights, ray_distance
from vkchi.types import Tensor, i32, template, u32

CHUNKS = 256  # partial bounds
TOP = 64  # nodes of the levels that one invocation computes
TINY = 1e-30  # smallest component of a direction; smaller ones become this
SLACK = 1 + 2**-20  # of the distance at which a ray leaves a box, for rounding

# --- build ---------------------------------------------------------------------------------------


@library_func
def is_box(low: Any, high: Any) -> Any:
    """False for boxes without points, with nan, or with infinity."""
    return (low <= high).all() and not (isinf(low) | isinf(high)).any()


@on_arrays(at=i32, n=i32)
def store_triangles(
    vertices: Any, triangles: Any, faces: Any, lower: Any, upper: Any, at: Any, n: Any
) -> None:
    """Store the indices and the boxes of n triangles, from triangles[at] on."""
    for k in range(n):
        face = triangles[at + k]
        a, b, c = vertices[face[0]], vertices[face[1]], vertices[face[2]]
        is_wrong = (isnan(a) | isnan(b) | isnan(c)).any()
        faces[k] = face
        lower[k] = select(is_wrong, inf, min(min(a, b), c))
        upper[k] = select(is_wrong, -inf, max(max(a, b), c))


@on_arrays(at=i32, n=i32, chunks=i32)
def bound_chunks(lower: Any, upper: Any, parts: Any, at: Any, n: Any, chunks: Any) -> None:
    """Store the bounds of the centres of chunk c's boxes in parts[2 c] and parts[2 c + 1]."""
    for c in range(chunks):
        low, high = select(False, parts[0], inf), select(False, parts[0], -inf)
        share = (n + chunks - 1) // chunks
        for k in range(c * share, min(n, c * share + share)):
            if is_box(lower[at + k], upper[at + k]):
                centre = 0.5 * lower[at + k] + 0.5 * upper[at + k]
                low, high = min(low, centre), max(high, centre)
        parts[2 * c] = low
        parts[2 * c + 1] = high


@on_arrays(chunks=i32)
def bound_all(parts: Any, bounds: Any, chunks: Any) -> None:
    """Store the bounds of all chunks in bounds[0] and bounds[1]."""
    for _ in range(1):
        low, high = parts[0], parts[1]
        for c in range(1, chunks):
            low, high = min(low, parts[2 * c]), max(high, parts[2 * c + 1])
        bounds[0] = low
        bounds[1] = high


# Steps that move the bits of a coordinate apart, per dimension: (shift, bits after it).
SPREADS = {
    2: ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)),
    3: ((16, 0x030000FF), (8, 0x0300F00F), (4, 0x030C30C3), (2, 0x09249249)),
}


@library_func
def morton_code(place: Any) -> Any:
    """Interleaved bits of a point of the unit square or cube: 16 or 10 bits per axis."""
    code = u32(0)
    cells = static(1 << 16 if place.n == 2 else 1 << 10)
    cell = u32(clamp(place * cells, 0.0, cells - 1.0))
    for axis in static(range(place.n)):
        x = cell[axis]
        for shift, bits in static(SPREADS[place.n]):
            x = (x | ((x & u32(bits >> shift)) << u32(shift))) & u32(bits)
        code |= x << u32(axis)
    return code


@on_arrays(at=i32, n=i32)
def load_codes(lower: Any, upper: Any, bounds: Any, pairs: Any, at: Any, n: Any) -> None:
    """Set pair k to the Morton code of the centre of box k, and k."""
    for k in range(n):
        low, size = bounds[0], max((bounds[1] - bounds[0]).max(), TINY)
        code = u32(0)
        if is_box(lower[at + k], upper[at + k]):
            centre = 0.5 * lower[at + k] + 0.5 * upper[at + k]
            code = morton_code((centre - low) / size)
        pairs[k] = Vector([code, u32(k)])


@on_arrays(at=i32, n=i32)
def load_groups(groups: Any, pairs: Any, at: Any, n: Any) -> None:
    """Set the key of each pair to the group of its primitive."""
    for k in range(n):
        index = pairs[k][1]
        pairs[k] = Vector([u32(groups[at + i32(index)]), index])


@on_arrays(n=i32, count=i32)
def store_starts(pairs: Any, starts: Any, n: Any, count: Any) -> None:
    """Store the first leaf of each group, and after the last group the number of leaves."""
    for k in range(n + 1):
        last, group = -1, count
        if k > 0:
            last = i32(pairs[k - 1][0])
        if k < n:
            group = i32(pairs[k][0])
        for filled in range(last + 1, group + 1):
            starts[filled] = k


@on_arrays(at=i32, n=i32)
def store_order(pairs: Any, order: Any, at: Any, n: Any) -> None:
    for k in range(n):
        order[k] = i32(pairs[k][1]) + at


@on_arrays(at=i32, n=i32, leaves=i32)
def store_leaves(
    lower: Any, upper: Any, order: Any, nodes: Any, at: Any, n: Any, leaves: Any
) -> None:
    """Store the boxes of the leaves; `at` is lower's index for the primitive 0 of `order`."""
    for k in range(leaves):
        box = select(False, nodes[0], inf)
        if k < n:
            index = at + order[k]
            if is_box(lower[index], upper[index]):
                low, high = lower[index], upper[index]
                for axis in static(range(low.n)):
                    box[axis] = low[axis]
                    box[low.n + axis] = -high[axis]
        nodes[leaves + k] = box


@on_arrays(n=i32, at=i32)
def store_corners(vertices: Any, faces: Any, order: Any, corners: Any, at: Any, n: Any) -> None:
    for k in range(n):
        face = faces[order[k] - at]
        for corner in static(range(3)):
            corners[3 * k + corner] = vertices[face[corner]]


@on_arrays(first=i32)
def merge_level(nodes: Any, first: Any) -> None:
    """Compute the boxes of the level that starts at node `first`."""
    for k in range(first):
        node = first + k
        nodes[node] = min(nodes[2 * node], nodes[2 * node + 1])


@on_arrays(count=i32)
def merge_top(nodes: Any, count: Any) -> None:
    """Compute the boxes of nodes count - 1 to 1."""
    for _ in range(1):
        for k in range(1, count):
            node = count - k
            nodes[node] = min(nodes[2 * node], nodes[2 * node + 1])


# --- traversal -----------------------------------------------------------------------------------


@library_func
def trailing_zeros(x: Any) -> Any:
    return i32(popcnt(~x & (x - u32(1))))


@library_func
def after_subtree(node: Any) -> Any:
    """The node after a subtree in preorder, 0 after the last."""
    following = u32(node) + u32(1)
    following = following >> u32(trailing_zeros(following))
    return select(following == u32(1), 0, i32(following))


class BVH:
    """A tree over triangles, or over boxes of 2 or 3 dimensions, for queries in kernels.

    Primitives with nan are found by no query; neither are boxes with infinity, or with a lower
    corner that exceeds the upper one.

    Attributes:
        order: a field of ti.i32. order[k] is the index of the k-th primitive in Morton order.
        first: the node at which `next_overlap` starts.
    """

    first = 1

    def __init__(
        self,
        vertices: Field | None = None,
        triangles: Storage | None = None,
        *,
        lower: Field | None = None,
        upper: Field | None = None,
        groups: Storage | None = None,
        group_count: int = 1,
    ) -> None:
        """Build the tree.

        Args:
            vertices: a one-dimensional field of vectors of 3 floats.
            triangles: a one-dimensional field or ndarray of vectors of 3 ti.i32, indices of
                `vertices`.
            lower, upper: instead of triangles, one-dimensional fields of vectors of 2 or 3 floats,
                the corners of boxes.
            groups: a one-dimensional field or ndarray of ti.i32, the group of each primitive, from
                0 to group_count - 1. A query may be limited to a group.
            group_count: number of groups.

        Raises:
            ArgumentError: for other arguments.
        """
        self.is_mesh = vertices is not None
        self.vertices: Any = vertices
        self.triangles: Any = triangles
        self.lower: Any = lower
        self.upper: Any = upper
        self.groups: Any = groups
        self.group_count = group_count
        if (vertices is None) != (triangles is None) or (lower is None) != (upper is None):
            raise ArgumentError("BVH: pass vertices and triangles, or lower and upper")
        if self.is_mesh == (lower is not None):
            raise ArgumentError("BVH: pass vertices and triangles, or lower and upper")
        t = self._check_mesh() if self.is_mesh else self._check_boxes()
        self._check_groups()
        d = t.shape[0]
        primitives: Any = self.triangles if self.is_mesh else self.lower
        n = self.count = primitives.shape[0]
        (self.origin,) = primitives.origin
        self.vector, self.number = t, t.elem
        self.axes = range(d)
        self.leaves = 1 << (n - 1).bit_length()
        self.depth = self.leaves.bit_length() - 1
        self.nodes = vector_field(2 * d, t.elem, 2 * self.leaves)  # low, and high negated
        self.order = field(i32, n)
        self.starts = field(i32, group_count + 1)
        if self.is_mesh:
            self.faces, self.corners = vector_field(3, i32, n), vector_field(3, t.elem, 3 * n)
            self.boxes: Any = ndarray(t, n), ndarray(t, n)
        else:
            self.boxes = lower, upper
        self.parts, self.bounds = ndarray(t, 2 * CHUNKS), ndarray(t, 2)
        self.sort = PairSort(n)
        self.build()

    def __repr__(self) -> str:
        return f"<BVH of {self.count} {'triangles' if self.is_mesh else 'boxes'}>"

    # --- arguments -------------------------------------------------------------------------------

    def _check_mesh(self) -> Any:
        t = check_vectors("vertices", self.vertices, (3,))
        check_array("BVH", "triangles", self.triangles, 1)
        if self.triangles.seen_elem is not Tensor.of(i32, (3,)):
            raise ArgumentError(
                f"BVH: triangles are vectors of 3 ti.i32, not {self.triangles.seen_elem}"
            )
        return t

    def _check_boxes(self) -> Any:
        t = check_vectors("lower", self.lower, (2, 3))
        other = check_vectors("upper", self.upper, (2, 3))
        lower, upper = self.lower, self.upper
        if (other, upper.shape, upper.origin) != (t, lower.shape, lower.origin):
            raise ArgumentError("BVH: `lower` and `upper` must have the same type and indices")
        return t

    def _check_groups(self) -> None:
        if not (isinstance(self.group_count, int) and self.group_count > 0):
            raise ArgumentError(f"BVH: group_count must be 1 or more, not {self.group_count!r}")
        if self.groups is None:
            if self.group_count != 1:
                raise ArgumentError("BVH: group_count= needs groups=")
            return
        check_array("BVH", "groups", self.groups, 1)
        primitives = self.triangles if self.is_mesh else self.lower
        if self.groups.seen_elem is not i32 or self.groups.shape != primitives.shape:
            raise ArgumentError(f"BVH: `groups` must hold {primitives.shape[0]} ti.i32")

    # --- build -----------------------------------------------------------------------------------

    def build(self) -> None:
        """Build the tree again, after primitives moved far. Runs on the device, without a wait."""
        n, pairs = self.count, self.sort.pairs
        at = self._load_boxes()
        bound_chunks(*self.boxes, self.parts, at, n, CHUNKS)
        bound_all(self.parts, self.bounds, CHUNKS)
        load_codes(*self.boxes, self.bounds, pairs, at, n)
        self.sort.run(n, 32 if self.vector.shape == (2,) else 30)
        if self.groups is not None:
            load_groups(self.groups, self.sort.pairs, *self.groups.origin, n)
            self.sort.run(n, (self.group_count - 1).bit_length())
            store_starts(self.sort.pairs, self.starts, n, self.group_count)
        store_order(self.sort.pairs, self.order, self.origin, n)
        self._store_nodes(at)

    def refit(self) -> None:
        """Compute the boxes of the tree again, after primitives moved a little. Faster than
        `build`; queries get slower as primitives leave their neighbourhood."""
        self._store_nodes(self._load_boxes())

    def _load_boxes(self) -> int:
        """Compute the boxes of triangles; return the index of box 0."""
        if not self.is_mesh:
            return int(self.origin)
        store_triangles(
            self.vertices, self.triangles, self.faces, *self.boxes, self.origin, self.count
        )
        return 0

    def _store_nodes(self, at: int) -> None:
        n, nodes = self.count, self.nodes
        store_leaves(*self.boxes, self.order, nodes, at - self.origin, n, self.leaves)
        if self.is_mesh:
            store_corners(self.vertices, self.faces, self.order, self.corners, self.origin, n)
        first = self.leaves // 2
        while first >= TOP:
            merge_level(nodes, first)
            first //= 2
        if first:
            merge_top(nodes, 2 * first)

    # --- queries ---------------------------------------------------------------------------------

    @library_func
    def find_group(self, group: Any) -> Any:
        """First and last node of the group's leaves; all leaves for a negative group."""
        first, end = 0, self.count
        if static(self.groups is not None) and group >= 0:
            first = self.starts[min(group, self.group_count)]
            end = self.starts[min(group + 1, self.group_count)]
        return self.leaves + first, self.leaves + end - 1

    @library_func
    def box_of(self, node: Any) -> Any:
        """Lower and upper corner of a node's box."""
        box, d = self.nodes[node], static(len(self.axes))
        return Vector([box[k] for k in self.axes]), Vector([-box[d + k] for k in self.axes])

    @library_func
    def is_outside(self, node: Any, shift: Any, span: Any) -> Any:
        """True if a node, `shift` levels above the leaves, has no leaf from span[0] to span[1]."""
        return node < (span[0] >> shift) or node > (span[1] >> shift)

    @library_func
    def ray_entry(self, node: Any, shift: Any, span: Any, o: Any, inverse: Any) -> Any:
        """The t >= 0 at which a ray enters a node; infinity if it misses it."""
        low, high = self.box_of(node)
        a, b = (low - o) * inverse, (high - o) * inverse
        enter, leave = max(min(a, b).max(), 0.0), max(a, b).min() * SLACK
        is_missed = enter > leave or not low[0] <= high[0]
        if static(self.groups is not None):
            is_missed = is_missed or self.is_outside(node, shift, span)
        return select(is_missed, inf, enter)

    @library_func
    def square_distance(self, node: Any, shift: Any, span: Any, p: Any) -> Any:
        """Squared distance of a point from a node's box; infinity for an empty box."""
        low, high = self.box_of(node)
        away = max(max(low - p, p - high), 0.0)
        found = away.dot(away)
        if static(self.groups is not None) and self.is_outside(node, shift, span):
            found = inf
        return found

    @library_func
    def entry(
        self,
        is_ray: template(),  # type: ignore[valid-type]
        node: Any,
        shift: Any,
        span: Any,
        p: Any,
        inverse: Any,
    ) -> Any:
        """Least value that `leaf_value` may have in a node."""
        if static(is_ray):
            return self.ray_entry(node, shift, span, p, inverse)
        return self.square_distance(node, shift, span, p)

    @library_func
    def leaf_value(
        self,
        is_ray: template(),  # type: ignore[valid-type]
        node: Any,
        span: Any,
        p: Any,
        d: Any,
        inverse: Any,
    ) -> Any:
        """The t of a ray p + t d at a leaf's primitive, or its squared distance from p."""
        if static(not self.is_mesh):
            return self.entry(is_ray, node, 0, span, p, inverse)
        k = 3 * (node - self.leaves)
        a, b, c = self.corners[k], self.corners[k + 1], self.corners[k + 2]
        if static(is_ray):
            return ray_distance(p, d, a, b, c)
        w = closest_weights(p, a, b, c)
        away = a + w[0] * (b - a) + w[1] * (c - a) - p
        return away.dot(away)

    @library_func
    def search(
        self,
        is_ray: template(),  # type: ignore[valid-type]
        p: Any,
        d: Any,
        most: Any,
        group: Any,
    ) -> Any:
        """Position in `order` of the primitive of least value below `most`; -1 without one."""
        span = self.find_group(group)
        inverse = 1.0 / select(abs(d) < TINY, TINY, d)
        is_wrong = (isnan(p) | isinf(p) | isnan(d) | isinf(d)).any()
        found, best = -1, self.number(select(is_wrong, -1.0, most))
        node, shift, pending = 1, self.depth, u32(0)
        more = self.entry(is_ray, node, shift, span, p, inverse) < best
        while more:
            descends = False
            if node >= self.leaves:
                value = self.leaf_value(is_ray, node, span, p, d, inverse)
                if value < best:
                    found = node - self.leaves
                    best = value
            else:
                left = 2 * node
                a = self.entry(is_ray, left, shift - 1, span, p, inverse)
                b = self.entry(is_ray, left + 1, shift - 1, span, p, inverse)
                if min(a, b) < best:
                    descends = True
                    node = left + i32(b < a)
                    shift -= 1
                    pending = (pending << u32(1)) | u32(max(a, b) < best)
            if not descends:
                if pending == u32(0):
                    more = False
                else:
                    up = trailing_zeros(pending)
                    node = (node >> up) ^ 1
                    pending = (pending >> u32(up)) ^ u32(1)
                    shift += up
        return found

    @library_func
    def corners_of(self, index: Any) -> Any:
        """The vertices of a triangle, with the values that they have now."""
        face = self.faces[index - self.origin]
        return self.vertices[face[0]], self.vertices[face[1]], self.vertices[face[2]]

    @library_func
    def closest_point(self, p: Any, max_distance: Any = inf, group: Any = -1) -> Any:
        """The primitive closest to p, among those closer than `max_distance`.

        Returns its index, and its point that is closest to p; -1 and p, if there is none. The point
        depends on the primitive's corners as they are now, and is differentiable.
        """
        x = self.vector(p)
        k = self.search(False, x, x, max_distance * max_distance, group)
        index, found = -1, x
        if k >= 0:
            index = self.order[k]
            if static(self.is_mesh):
                a, b, c = self.corners_of(index)
                w = closest_weights(x, a, b, c)
                found = a + w[0] * (b - a) + w[1] * (c - a)
            else:
                found = max(min(x, self.upper[index]), self.lower[index])
        return index, found

    @library_func
    def ray_cast(self, origin: Any, direction: Any, max_t: Any = inf, group: Any = -1) -> Any:
        """The first primitive on the ray origin + t direction, 0 <= t < max_t.

        Returns its index and t; -1 and max_t, if there is none. Triangles are hit from both sides.
        A ray that starts in a box hits it at t = 0. t depends on the primitive's corners as they
        are now, and is differentiable.
        """
        o, d = self.vector(origin), self.vector(direction)
        k = self.search(True, o, d, max_t, group)
        index, t = -1, self.number(max_t)
        if k >= 0:
            index = self.order[k]
            if static(self.is_mesh):
                a, b, c = self.corners_of(index)
                t = ray_distance(o, d, a, b, c)
            else:
                inverse = 1.0 / select(abs(d) < TINY, TINY, d)
                a, b = (self.lower[index] - o) * inverse, (self.upper[index] - o) * inverse
                t = max(min(a, b).max(), 0.0)
        return index, t

    @library_func
    def next_overlap(self, node: Any, low: Any, high: Any, group: Any = -1) -> Any:
        """The next primitive, from `node` on, whose box has a point in common with [low, high].

        Returns its index, -1 without one, and the node to continue from.

            j, at = bvh.next_overlap(bvh.first, low, high)
            while j >= 0:
                j, at = bvh.next_overlap(at, low, high)
        """
        a, b = self.vector(low), self.vector(high)
        span = self.find_group(group)
        found, at = -1, i32(node)
        while at > 0 and found < 0:
            c, d = self.box_of(at)
            is_hit = (c <= b).all() and (a <= d).all()
            if static(self.groups is not None):
                is_hit = is_hit and not self.is_outside(at, self.depth + clz(at) - 31, span)
            if is_hit and at < self.leaves:
                at = 2 * at
            else:
                if is_hit:
                    found = self.order[at - self.leaves]
                at = after_subtree(at)
        return found, at


def check_vectors(name: str, x: Any, lengths: tuple[int, ...]) -> Tensor:
    """Return the type of a one-dimensional field of vectors of floats. Raises ArgumentError."""
    check_array("BVH", name, x, 1)
    if not isinstance(x, Field):
        raise ArgumentError(f"BVH: `{name}` must be a field, which kernels read in queries")
    t = x.seen_elem
    if not (isinstance(t, Tensor) and t.shape in [(d,) for d in lengths] and t.elem.kind == "f"):
        words = " or ".join(map(str, lengths))
        raise ArgumentError(f"BVH: `{name}` must hold vectors of {words} floats, not {t}")
    return t
