import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_dual=True)
loss = ti.field(ti.f32, shape=(), needs_grad=True)
with ti.ad.FwdMode(x, x, seed=[1, 0, 0]), ti.ad.Tape(loss):
    pass
