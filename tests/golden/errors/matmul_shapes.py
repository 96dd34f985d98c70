import vkchi as ti

v = ti.Vector.field(3, ti.f32, shape=8)


@ti.kernel
def k():
    m = ti.Matrix([[1.0, 2.0], [3.0, 4.0]])
    y = m @ v[0]
