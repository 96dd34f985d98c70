import vkchi as ti

S = ti.types.struct(a=ti.i32, v=ti.math.vec3)

f = S.field(shape=3)


@ti.kernel
def k():
    f[0].speed = 3


k()
