import vkchi as ti

loss = ti.field(ti.f32, shape=())
with ti.ad.Tape(loss):
    pass
