import vkchi as ti

x = ti.field(ti.f32, 4)


@ti.kernel
def k():
    for i, j in range(4), range(1, 3):
        x[i] = j
