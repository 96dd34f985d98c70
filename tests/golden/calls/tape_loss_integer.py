import vkchi as ti

loss = ti.field(ti.i32, shape=())
with ti.ad.Tape(loss):
    pass
