import vkchi as ti

v = ti.Vector.field(3, ti.f32, shape=8)


@ti.kernel
def k(n: ti.i32):
    y = v[0] if n > 0 else ti.Vector([1.0, 2.0])
