import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_dual=True)
loss = ti.field(ti.f32, shape=(), needs_dual=True)
with ti.ad.FwdMode(loss, x):
    pass
