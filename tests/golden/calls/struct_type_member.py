import vkchi as ti

ti.types.struct(a=ti.i32, b=3)
