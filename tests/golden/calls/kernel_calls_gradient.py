import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_grad=True)
loss = ti.field(ti.f32, shape=(), needs_grad=True)


@ti.kernel
def run():
    for i in x:
        loss[None] += x[i] ** 2


@ti.kernel
def k():
    run.grad()


k()
