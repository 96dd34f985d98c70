import vkchi as ti

x = ti.field(ti.f32, 4)


@ti.kernel
def k():
    for a, b in zip(x, x):
        x[0] += a * b
