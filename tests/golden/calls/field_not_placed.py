import vkchi as ti

x = ti.field(ti.f32)
x[0] = 1.0
