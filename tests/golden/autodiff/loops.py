"""A carried value in a serial loop: saved per iteration, read from the last iteration to the first."""

import vkchi as ti

x = ti.field(ti.f32, shape=8)
loss = ti.field(ti.f32, shape=())


@ti.kernel
def carried(n: ti.i32):
    for i in x:
        s = x[i]
        for j in range(n):
            s = ti.sin(s) * x[j]
        loss[None] += s


@ti.kernel
def linear(n: ti.i32):
    for i in x:
        s = 0.0
        for j in range(n):
            s += 2.0 * x[j]
        loss[None] += s
