import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_grad=True)
loss = ti.field(ti.f32, shape=(), needs_grad=True)


@ti.kernel
def run():
    for i in x:
        ti.atomic_mul(loss[None], x[i])
        ti.atomic_add(loss[None], x[i])


with ti.ad.Tape(loss):
    run()
