import vkchi as ti

v = ti.Vector.field(3, ti.f32, shape=8)


@ti.kernel
def k():
    for c in v[0]:
        pass
