import vkchi as ti

ti.Vector.field(2, [ti.f32, ti.i32], shape=4)
