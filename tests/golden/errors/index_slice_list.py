import vkchi as ti

x = ti.field(ti.f32, shape=8)


@ti.kernel
def k():
    x[1:3] = [1.0, 2.0]
