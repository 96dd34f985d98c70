import vkchi as ti

x = ti.field(ti.f32, shape=(4, 4))


@ti.kernel
def k():
    row = x[0, :]
    row[1, 2] = 0.0
