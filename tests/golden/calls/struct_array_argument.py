import vkchi as ti

S = ti.types.struct(a=ti.i32, v=ti.math.vec3)


@ti.kernel
def k(x: ti.types.ndarray(dtype=S)):
    pass


k(ti.ndarray(ti.f32, 3))
