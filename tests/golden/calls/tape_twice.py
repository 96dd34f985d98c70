import vkchi as ti

loss = ti.field(ti.f32, shape=(), needs_grad=True)
tape = ti.ad.Tape(loss)
with tape:
    pass
with tape:
    pass
