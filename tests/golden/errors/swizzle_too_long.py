import vkchi as ti

x = ti.field(ti.f32, shape=(4, 4))
v = ti.Vector.field(3, ti.f32, shape=8)


@ti.kernel
def k():
    x[0, 0] = v[0].w
