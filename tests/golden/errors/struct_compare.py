import vkchi as ti

S = ti.types.struct(a=ti.i32, v=ti.math.vec3)


@ti.kernel
def k():
    s = S(1)
    while s == S(1):
        s.a += 1
