import vkchi as ti

x = ti.field(ti.f32, shape=4)


@ti.kernel
def k():
    y = x.sum()
