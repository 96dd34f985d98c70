import vkchi as ti

x = ti.Struct.field({"pos": ti.f32}, shape=4)

y = x.poss
