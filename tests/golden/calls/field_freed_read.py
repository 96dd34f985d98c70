import vkchi as ti

x = ti.field(ti.f32, 4)

ti.init()
y = x[0]
