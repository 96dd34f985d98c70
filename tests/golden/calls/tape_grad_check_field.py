import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_grad=True)
loss = ti.field(ti.f32, shape=(), needs_grad=True)
with ti.ad.Tape(loss, grad_check=x):
    pass
