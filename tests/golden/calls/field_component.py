import vkchi as ti

ti.Vector.field(3, ti.f32, shape=4).get_scalar_field(3)
