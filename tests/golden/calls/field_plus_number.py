import vkchi as ti

x = ti.field(ti.f32, 4)

y = x + 1
