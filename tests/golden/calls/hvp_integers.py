import vkchi as ti

loss = ti.field(ti.f32, shape=(), needs_grad=True)
x = ti.field(ti.i32, shape=3)
ti.ad.hvp(print, loss, x, [1, 0, 0])
