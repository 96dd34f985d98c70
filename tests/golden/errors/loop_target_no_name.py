import vkchi as ti

x = ti.field(ti.f32, shape=(4, 4))


@ti.kernel
def k():
    for x[0, 0] in range(3):
        pass
