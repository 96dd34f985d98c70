import vkchi as ti

v = ti.Vector.field(3, ti.f32, shape=8)


@ti.func
def inner(a):
    return a @ a.xy


@ti.func
def outer(a):
    return inner(a) + 1


@ti.kernel
def k():
    y = outer(v[0])
