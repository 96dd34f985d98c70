import vkchi as ti

x = ti.field(ti.f32, 4)

ti.reset()
y = x[0]
