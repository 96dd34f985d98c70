import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_grad=True)
loss = ti.field(ti.f32, shape=(), needs_grad=True)
ti.ad.hvp(print, loss, x, [1, 0])
