import vkchi as ti

x = ti.field(ti.f32, 3)


@ti.kernel
def k():
    for i in x:
        ti.atomic_cas(x[i], 1.0, 2.0)
