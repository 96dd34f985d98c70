import vkchi as ti

x = ti.field(ti.f32, shape=4)


@ti.kernel
def k():
    for i in x:
        x.grad[i] = 1.0


k()
