import vkchi as ti

S = ti.types.struct(a=ti.i32, v=ti.math.vec3)

one = S(1)


@ti.kernel
def k():
    one.a = 2
