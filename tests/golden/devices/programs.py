"""Kernels of all types and kinds of operations, for the modules of the known devices."""

import vkchi as ti

N = 256
x, y = ti.field(ti.f32, N), ti.field(ti.f32, N)
k, at = ti.field(ti.i32, N), ti.field(ti.i32, N)
b, s, w = ti.field(ti.u8, N), ti.field(ti.i16, N), ti.field(ti.i64, N)
h, d = ti.field(ti.f16, N), ti.field(ti.f64, N)
v, u = ti.Vector.field(3, ti.f32, N), ti.Vector.field(4, ti.f32, N)
bins, total = ti.field(ti.i32, 16), ti.field(ti.f32, ())
double, long = ti.field(ti.f64, ()), ti.field(ti.i64, ())
a, m = ti.field(ti.f32, (64, 64)), ti.field(ti.f32, (64, 64))


@ti.kernel
def vectors():
    for i in v:
        v[i] += ti.Vector([u[i][0], u[i][1], u[i][2]]) * u[i][3]
        u[at[i]] = ti.Vector([v[i][0], v[i][1], v[i][2], 1.0])


@ti.kernel
def host_vectors(p: ti.types.ndarray(dtype=ti.types.vector(3, ti.f32), ndim=1)):
    for i in p:
        p[i] = p[i] * 2.0


@ti.kernel
def gathered():
    for i in x:
        y[i] = x[at[i]] + x[at[i] + 1]


@ti.kernel
def total_of_floats():
    for i in x:
        total[None] += x[i]


@ti.kernel
def largest_float():
    for i in x:
        ti.atomic_max(total[None], x[i])


@ti.kernel
def scattered_floats():
    for i in x:
        y[at[i]] += x[i]


@ti.kernel
def scattered_doubles():
    for i in d:
        d[at[i]] += 1.5


@ti.kernel
def histogram():
    for i in k:
        bins[k[i] & 15] += 1


@ti.kernel
def bytes_and_shorts():
    for i in b:
        b[i] = ti.u8(b[i] + 3)
        s[i] = ti.i16(s[i] * 3)


@ti.kernel
def narrow_atomics():
    for i in at:
        b[at[i]] += ti.u8(1)
        s[at[i]] += ti.i16(1)


@ti.kernel
def halves():
    for i in h:
        h[i] = ti.sqrt(h[i]) + ti.cast(x[i], ti.f16)


@ti.kernel
def doubles():
    for i in d:
        d[i] = ti.sin(d[i]) / 3.0 + ti.sqrt(d[i])


@ti.kernel
def longs():
    for i in w:
        w[i] = w[i] * 3 + (w[i] >> 7) // 5


@ti.kernel
def total_of_longs():
    for i in w:
        long[None] += w[i]


@ti.kernel
def scattered_longs():
    for i in w:
        w[at[i]] += 1


@ti.kernel
def total_of_doubles():
    for i in d:
        double[None] += d[i]


@ti.kernel
def matmul():
    for i, j in m:
        c = 0.0
        for q in range(64):
            c += a[i, q] * a[q, j]
        m[i, j] = c


@ti.kernel
def transpose():
    for i, j in m:
        m[i, j] = a[j, i]


@ti.kernel
def workgroup_tiles():
    ti.loop_config(block_dim=64)
    for i in range(N):
        tile = ti.simt.block.SharedArray((64,), ti.f32)
        tile[i % 64] = x[i]
        ti.simt.block.sync()
        y[i] = tile[63 - i % 64]


@ti.kernel
def workgroup_atomics():
    ti.loop_config(block_dim=64)
    for i in range(N):
        tile = ti.simt.block.SharedArray((64,), ti.f32)
        tile[i % 64] = 0.0
        ti.simt.block.sync()
        ti.atomic_add(tile[at[i] & 63], x[i])
        ti.simt.block.sync()
        y[i] = tile[i % 64]


@ti.kernel
def scans():
    for i in k:
        at[i] = ti.simt.subgroup.inclusive_max(k[i]) + ti.simt.subgroup.exclusive_xor(k[i])
        y[i] = ti.simt.subgroup.exclusive_min(x[i]) + ti.simt.subgroup.inclusive_add(x[i])


@ti.kernel
def long_scans():
    for i in w:
        w[i] = ti.simt.subgroup.inclusive_min(w[i]) + ti.simt.subgroup.reduce_add(w[i])


@ti.kernel
def shuffles():
    for i in k:
        k[i] = ti.simt.subgroup.shuffle_down(k[i], 1) + ti.simt.subgroup.shuffle_xor(k[i], 2)


@ti.kernel
def warps():
    for i in k:
        k[i] = ti.cast(ti.simt.warp.ballot(k[i] > 3), ti.i32) + ti.simt.warp.any_nonzero(7, k[i])


@ti.kernel
def votes():
    for i in k:
        if ti.simt.subgroup.all_true(k[i] > 3):
            k[i] = 0


@ti.kernel
def random_numbers():
    for i in x:
        x[i] = ti.random() + ti.sin(x[i]) + ti.pow(x[i], 2.5) + ti.atan2(x[i], y[i])


@ti.kernel
def whole_numbers():
    for i in k:
        k[i] = k[i] // 7 + k[i] % 5 + ti.math.popcnt(k[i]) + ti.min(k[i], 3) + (k[i] >> 2)
