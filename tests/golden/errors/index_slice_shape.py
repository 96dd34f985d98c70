import vkchi as ti

x = ti.field(ti.f32, shape=(4, 4))
y = ti.field(ti.f32, shape=8)


@ti.kernel
def k():
    x[1, :] = y[1:4]
