import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_dual=True)
loss = ti.field(ti.f32, shape=(), needs_dual=True)
y = ti.field(ti.f32, shape=3)


@ti.kernel
def run():
    for i in x:
        y[i] = 2 * x[i]
    for i in x:
        loss[None] += y[i]


with ti.ad.FwdMode(loss, x, seed=[1, 0, 0]):
    run()
