import vkchi as ti

x = ti.field(ti.f32, shape=(4, 4))


@ti.kernel
def k():
    if ti.static(True):
        q = 1
    x[0, 0] = q
