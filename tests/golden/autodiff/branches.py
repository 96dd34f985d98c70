"""Conditions are evaluated again; values of an arm are recomputed in its reverse."""

import vkchi as ti

x = ti.Vector.field(2, ti.f32, shape=8)
loss = ti.field(ti.f32, shape=())


@ti.kernel
def guarded():
    for i in x:
        v = x[i]
        if v.x > 0:
            loss[None] += v.dot(v) / v.norm()
        else:
            loss[None] -= v.y
