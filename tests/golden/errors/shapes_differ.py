import vkchi as ti

v = ti.Vector.field(3, ti.f32, shape=8)


@ti.kernel
def k():
    w = v[0] + ti.Vector([1.0, 2.0])
