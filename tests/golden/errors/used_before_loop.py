import vkchi as ti

x = ti.field(ti.f32, shape=(4, 4))


@ti.kernel
def k():
    for i in range(4):
        s = i
    x[0, 0] = s
