import vkchi as ti

loss = ti.field(ti.f32, shape=(), needs_grad=True)
x = ti.field(ti.f32, shape=3)
ti.ad.gradcheck(print, loss, [x])
