import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_grad=True)
loss = ti.field(ti.f32, shape=(), needs_dual=True)
with ti.ad.FwdMode(loss, x, seed=[1, 0, 0]):
    pass
