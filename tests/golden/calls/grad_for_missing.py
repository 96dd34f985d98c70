import vkchi as ti

loss = ti.field(ti.f32, shape=(), needs_grad=True)


@ti.ad.grad_replaced
def f():
    pass


with ti.ad.Tape(loss):
    f()
