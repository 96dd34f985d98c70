import vkchi as ti

x = ti.field(ti.f32, shape=1024)
total = ti.field(ti.f32, shape=())


@ti.kernel
def into_a_field():
    for i in x:
        total[None] += x[i]


@ti.kernel
def into_a_variable() -> ti.f32:
    s = 0.0
    for i in x:
        s += x[i]
    return s
