import vkchi as ti

loss = ti.field(ti.f32, shape=(), needs_grad=True)
ti.ad.hvp(print, loss, 3.0, [1])
