import vkchi as ti

v = ti.Vector.field(3, ti.f32, shape=8)


@ti.func
def f(a: ti.types.vector(2, ti.f32)):
    return a


@ti.kernel
def k():
    y = f(v[0])
