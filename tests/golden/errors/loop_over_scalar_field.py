import vkchi as ti

s = ti.field(ti.f32, shape=())


@ti.kernel
def k():
    for i in s:
        pass
