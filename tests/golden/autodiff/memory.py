"""Memory that the kernel overwrites: read as it was found, copied only where it is read after."""

import vkchi as ti

x = ti.field(ti.f32, shape=8)
y = ti.field(ti.f32, shape=8)


@ti.kernel
def in_place():
    for i in x:
        x[i] = x[i] * x[i]


@ti.kernel
def overwritten():
    for i in x:
        y[i] = x[i]
        if i > 3:
            y[i] = 1.0


@ti.kernel
def two_loops():
    for i in x:
        y[i] = x[i] * x[i]
    for i in x:
        x[i] = ti.exp(y[i])
