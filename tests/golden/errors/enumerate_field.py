import vkchi as ti

x = ti.field(ti.f32, 4)


@ti.kernel
def k():
    for i, v in enumerate(x):
        x[i] = v
