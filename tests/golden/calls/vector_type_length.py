import vkchi as ti

ti.types.vector(0, ti.f32)
