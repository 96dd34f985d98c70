import vkchi as ti

x = ti.field(ti.f32, shape=4)


@ti.kernel
def k():
    x[0] = ti.math.lerp(1.0, 2.0, 0.5)
