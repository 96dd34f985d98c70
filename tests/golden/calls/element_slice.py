import vkchi as ti

ti.init()
x = ti.field(ti.f32, shape=8)
x[::-1] = 1.0
