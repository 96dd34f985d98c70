import vkchi as ti

ti.feild(ti.f32, 4)
