import vkchi as ti

loss = ti.field(ti.f32, shape=(), needs_grad=True)
with ti.ad.Tape(loss, memory="much"):
    pass
