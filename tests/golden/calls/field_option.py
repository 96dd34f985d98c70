import vkchi as ti

ti.field(ti.f32, shape=4, ofset=1)
