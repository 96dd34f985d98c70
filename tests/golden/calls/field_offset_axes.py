import vkchi as ti

ti.field(ti.i32, shape=(4, 4), offset=1)
