import vkchi as ti

x = ti.field(ti.f32, ())

y = len(x)
