import vkchi as ti

S = ti.types.struct(a=ti.i32, v=ti.math.vec3)


@ti.func
def grow(s: ti.template()):
    s.a += 1


@ti.kernel
def k():
    grow(S(1))
