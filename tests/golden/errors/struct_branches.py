import vkchi as ti

S = ti.types.struct(a=ti.i32, v=ti.math.vec3)
T = ti.types.struct(b=ti.f32)


@ti.func
def pick(c):
    if c > 0:
        return S(1)
    return T(2)


@ti.kernel
def k(c: ti.i32):
    s = pick(c)
