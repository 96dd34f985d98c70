import vkchi as ti

x = ti.field(ti.f32, 4)


@ti.kernel
def k():
    x[0] = sum(x)
