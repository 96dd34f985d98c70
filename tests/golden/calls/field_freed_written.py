import vkchi as ti

x = ti.field(ti.f32, 4)

ti.init()
x[0] = 1
