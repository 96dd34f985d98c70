import vkchi as ti

x = ti.field(ti.f32)


@ti.kernel
def k():
    for i in range(4):
        x[i] = 1.0


k()
