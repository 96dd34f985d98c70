import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_grad=True)
loss = ti.field(ti.f32, shape=(), needs_grad=True)


@ti.kernel
def run():
    for i in x:
        loss[None] += 3.0 * ti.stop_grad(x[i])


ti.ad.gradcheck(run, loss, [x])
