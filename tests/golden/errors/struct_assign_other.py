import vkchi as ti

S = ti.types.struct(a=ti.i32, v=ti.math.vec3)
T = ti.types.struct(b=ti.f32)


@ti.kernel
def k():
    s = S(1)
    for i in range(3):
        s = T(i)
