import vkchi as ti

ti.types.ndarray(ti.f32, 1, boundary="wrap")
