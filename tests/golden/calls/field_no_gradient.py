import vkchi as ti

x = ti.field(ti.f32, shape=4)
x.grad[0] = 1.0
