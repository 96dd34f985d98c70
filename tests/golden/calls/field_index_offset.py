import vkchi as ti

x = ti.field(ti.f32, shape=(2, 2), offset=(-1, 3))
x[-1, 2] = 1.0
