import vkchi as ti

x = ti.ndarray(ti.f32, 4)

y = x + 1
