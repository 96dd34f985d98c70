import vkchi as ti

x = ti.Struct.field({"a": ti.f32}, shape=4)

list(x)
