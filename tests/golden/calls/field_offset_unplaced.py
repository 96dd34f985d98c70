import vkchi as ti

ti.field(ti.i32, offset=1)
