import vkchi as ti

v = ti.Vector.field(3, ti.f32, shape=8)


@ti.kernel
def k():
    v[0, 1] = 0.0
