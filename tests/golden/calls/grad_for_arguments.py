import vkchi as ti

loss = ti.field(ti.f32, shape=(), needs_grad=True)


@ti.ad.grad_replaced
def f(count):
    pass


@ti.ad.grad_for(f)
def g():
    pass


with ti.ad.Tape(loss):
    f(3)
