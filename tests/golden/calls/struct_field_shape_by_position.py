import vkchi as ti

ti.Struct.field({"mass": ti.f32}, 4)
